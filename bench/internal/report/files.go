package report

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Name is what the report and the directory of its plots are called.
const Name = "benchmarks"

// WriteFiles writes the report to the directory, as benchmarks.md, and its plots to benchmarks in it. Plots of an earlier report are removed.
func (r *Report) WriteFiles(dir string) error {
	plots := filepath.Join(dir, Name)
	if err := os.MkdirAll(plots, 0o755); err != nil { //nolint:gosec // it is for all to read
		return err
	}
	old, err := filepath.Glob(filepath.Join(plots, "*.svg"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for _, s := range r.Sections {
		for _, c := range s.Charts {
			if err := write(filepath.Join(plots, c.File+".svg"), c.SVG); err != nil {
				return err
			}
		}
	}
	return write(filepath.Join(dir, Name+".md"), func(out io.Writer) error { return r.Markdown(out, Name) })
}

func write(file string, content func(io.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(content(f), f.Close())
}
