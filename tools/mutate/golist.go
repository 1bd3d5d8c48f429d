package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// goPackage is a package of the repository, parsed and with the types of its expressions.
type goPackage struct {
	name  string // of the package clause
	dir   string // absolute
	fset  *token.FileSet
	files []*ast.File
	paths []string // of the files, absolute
	texts []string // of the files
	info  *types.Info
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Name, Dir, Export string
	GoFiles                       []string
	DepOnly                       bool
}

// loadPackage parses the package in a folder of the repository, without its tests, and finds the types of its expressions.
func loadPackage(ctx context.Context, root, folder string) (*goPackage, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Name,Dir,Export,GoFiles,DepOnly", "./"+folder)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var target *listed
	exports := map[string]string{}
	for decoder := json.NewDecoder(out); ; {
		var one listed
		if err = decoder.Decode(&one); err != nil {
			break
		}
		exports[one.ImportPath] = one.Export
		if !one.DepOnly {
			target = &one
		}
	}
	if !errors.Is(err, io.EOF) {
		err = errors.Join(err, cmd.Wait())
		return nil, fmt.Errorf("go list %s: %w", folder, err)
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("go list %s: %w", folder, err)
	}
	if target == nil {
		return nil, fmt.Errorf("go list %s names no package", folder)
	}
	return target.check(exports)
}

// check parses the files of a package and finds their types from the export data of what it imports.
func (l *listed) check(exports map[string]string) (*goPackage, error) {
	p := &goPackage{name: l.Name, dir: l.Dir, fset: token.NewFileSet()}
	for _, name := range l.GoFiles {
		path := filepath.Join(l.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(p.fset, path, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		p.files, p.paths, p.texts = append(p.files, file), append(p.paths, path), append(p.texts, string(text))
	}
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("there is no export data of %s", path)
		}
		return os.Open(exports[path])
	})}
	_, err := config.Check(l.ImportPath, p.fset, p.files, p.info)
	return p, err
}
