// Command site builds the documents and the examples of the repository as a site of static pages with a search, which needs no server.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	out := flag.String("out", ".site", "the folder of the site; what is in it stays, unless a file of the site replaces it")
	flag.Parse()
	pages, err := build(*root, *out)
	if err == nil {
		err = errors.Join(check(*out, pages)...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Printf("%d pages: %s/index.html\n", len(pages), *out)
}
