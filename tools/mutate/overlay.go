package main

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// writeOverlay writes changed files into a folder, and returns the path of the overlay that tells go of them. The repository stays
// as it is.
func writeOverlay(scratch string, changed map[string]string) (string, error) {
	replace := map[string]string{}
	for path, text := range changed {
		folder := filepath.Join(scratch, itoa(len(replace))) // each has its own, so that the copy can keep the name
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return "", err
		}
		copied := filepath.Join(folder, filepath.Base(path))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(scratch, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
