//go:build !unix

package redistest

import (
	"errors"
	"fmt"
)

func (p *process) pause() error  { return fmt.Errorf("pause: %w", errors.ErrUnsupported) }
func (p *process) resume() error { return fmt.Errorf("resume: %w", errors.ErrUnsupported) }
