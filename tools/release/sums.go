package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
)

// sumsFile has the checksum of every other file of a release.
const sumsFile = "SHA256SUMS"

// moduleSums returns the lines that go.sum of a user will have for the packed modules.
func moduleSums(proxy, version string, modules []mod) (string, error) {
	var lines strings.Builder
	for _, m := range modules {
		escaped, err := module.EscapePath(m.path())
		if err != nil {
			return "", err
		}
		sum, err := dirhash.HashZip(filepath.Join(proxy, filepath.FromSlash(escaped), "@v", version+".zip"), dirhash.Hash1)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&lines, "%s %s %s\n", m.path(), version, sum)
	}
	return lines.String(), nil
}

// sum writes the checksums of the files in a folder, as sha256sum -c reads them.
func sum(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		digest := sha256.Sum256(text)
		fmt.Fprintf(&lines, "%s  %s\n", hex.EncodeToString(digest[:]), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(lines.String()), 0o644)
}

// sign signs the checksums with an SSH key, and checks the signature. Without a key it only says so.
func sign(ctx context.Context, dir, key string) (string, error) {
	if key == "" {
		return "not signed: SIGNING_KEY names no key, so the checksums only show that a download is whole", nil
	}
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return "", fmt.Errorf("SIGNING_KEY is set, and ssh-keygen, which signs, is not installed: %w", err)
	}
	name := filepath.Join(dir, sumsFile)
	_ = os.Remove(name + ".sig")
	run := func(stdin *os.File, args ...string) error {
		cmd := exec.CommandContext(ctx, "ssh-keygen", args...)
		if stdin != nil {
			cmd.Stdin = stdin
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ssh-keygen %s: %w\n%s", strings.Join(args[:2], " "), err, out)
		}
		return nil
	}
	if err := run(nil, "-Y", "sign", "-f", key, "-n", "file", name); err != nil {
		return "", err
	}
	sums, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer sums.Close()
	if err := run(sums, "-Y", "check-novalidate", "-n", "file", "-s", name+".sig"); err != nil {
		return "", errors.Join(errors.New("the signature does not fit"), err)
	}
	return "signed with " + key, nil
}
