package main

import (
	"os"

	"github.com/fatih/color"
	"github.com/mattn/go-isatty"
)

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

// palette paints text, or leaves it alone.
type palette struct{ on bool }

// newPalette paints for a terminal, unless its user doesn't want that.
func newPalette(stream any, env environ) palette {
	return palette{on: isTerminal(stream) && env.get("NO_COLOR") == "" && env.get("TERM") != "dumb"}
}

func (p palette) paint(text string, attributes ...color.Attribute) string {
	c := color.New(attributes...)
	if p.on {
		c.EnableColor()
	} else {
		c.DisableColor()
	}
	return c.Sprint(text)
}
