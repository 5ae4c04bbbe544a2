package main

import (
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	columns = 2
	width   = 22 * vg.Centimeter
	height  = 14 * vg.Centimeter
)

// Colours of a curve and of its bound.
var (
	curve = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	limit = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
)

// drawInto writes the curves, each with its bound, into an SVG file.
func drawInto(file string, r *result) error {
	var rows [][]*plot.Plot
	for i, s := range r.series {
		p, err := plotOf(s)
		if err != nil {
			return fmt.Errorf("draw %s: %w", s.name, err)
		}
		if i%columns == 0 {
			rows = append(rows, nil)
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], p)
	}
	canvas := vgsvg.New(width, height)
	tiles := tilesOf(len(rows))
	for y, line := range plot.Align(rows, tiles, draw.New(canvas)) {
		for x, c := range line {
			rows[y][x].Draw(c)
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func tilesOf(rows int) draw.Tiles {
	gap := 5 * vg.Millimeter
	return draw.Tiles{Rows: rows, Cols: columns, PadX: gap, PadY: gap, PadTop: gap, PadBottom: gap, PadLeft: gap, PadRight: gap}
}

func plotOf(s *series) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = s.name
	if s.unit != "" {
		p.Title.Text += ", " + s.unit
	}
	p.X.Label.Text = "minutes"
	p.Y.Min = 0
	points := make(plotter.XYs, len(s.values))
	for i, v := range s.values {
		points[i] = plotter.XY{X: s.at[i].Minutes(), Y: v}
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return nil, err
	}
	line.Color = curve
	p.Add(plotter.NewGrid(), line)
	if from, _, enough := s.growth(); enough {
		y := s.bound(from)
		bound, err := plotter.NewLine(plotter.XYs{{X: s.settles.Minutes(), Y: y}, {X: points[len(points)-1].X, Y: y}})
		if err != nil {
			return nil, err
		}
		bound.Color, bound.Dashes = limit, []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(bound)
	}
	return p, nil
}
