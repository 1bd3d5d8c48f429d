package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// Exit statuses.
const (
	exitOK        = 0
	exitError     = 1
	exitFound     = 2
	exitUnchecked = 3
)

// errFound ends a command that has found something: it is printed already.
var errFound = errors.New("something was found")

// errUnchecked ends a command that has found nothing, but could not look at everything: it is printed already.
var errUnchecked = errors.New("not everything could be checked")

const help = `railtoken shows what holds each business key, which tasks wait for it and why, and steps in.

The address of Redis comes from the RAILTOKEN_* variables of the workers, such as RAILTOKEN_REDIS_ADDR; flags override
them. A password can be given only in its variable, RAILTOKEN_REDIS_PASSWORD, or in the file that
RAILTOKEN_REDIS_PASSWORD_FILE names.

A task is named queue/id, or by its id alone; it may be in any lane of the queue. If a table shows a key or a task in quotes, include them.

Exit status: 0 all is well, 1 an error, 2 the command has found something (doctor, explain, nodes), 3 doctor has found
nothing, but could not check everything.`

// app is one call of the command.
type app struct {
	in     io.Reader
	out    *terminal
	errOut *terminal

	json    bool
	hash    bool
	timeout time.Duration
	conn    connection
	shown   map[string]bool // keys that were named, and that errors must not show with --hash
}

// run runs the command and returns its exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: &terminal{w: out}, errOut: &terminal{w: errOut}, shown: map[string]bool{}}
	root := a.root()
	root.SetArgs(args)
	err := cmp.Or(root.ExecuteContext(ctx), a.out.err)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFound):
		return exitFound
	case errors.Is(err, errUnchecked):
		return exitUnchecked
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		a.errOut.failure("stopped")
		return exitError
	}
	if strings.Contains(err.Error(), string(rediswire.NoPerm)) {
		err = fmt.Errorf(`%w: give the user of Redis the rules that docs/operations.md names under "ACL rules"`, err)
	}
	a.errOut.failure(a.hidden(err.Error()))
	return exitError
}

// root returns the command with all of its commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "railtoken", Short: "see and steer locks and waiting tasks", Long: help,
		SilenceErrors: true, SilenceUsage: true, Version: version(),
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print JSON with field names that do not change between releases")
	flags.BoolVar(&a.hash, "hash", false, "show keys as the hashes that appear in logs")
	flags.DurationVar(&a.timeout, "timeout", 15*time.Second, "give up after this time")
	a.conn.flags(flags)
	root.AddGroup(&cobra.Group{ID: "see", Title: "See:"}, &cobra.Group{ID: "steer", Title: "Steer:"})
	for _, c := range []*cobra.Command{
		a.keysCommand(), a.lookCommand(), a.waitersCommand(), a.workersCommand(), a.nodesCommand(), a.explainCommand(),
		a.doctorCommand(), a.auditCommand(), a.watchCommand(), a.topCommand(), a.adminCommand(),
	} {
		c.GroupID = "see"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{
		a.deposeCommand(), a.wakeCommand(), a.putFirstCommand(), a.putLastCommand(), a.dropCommand(), a.cancelCommand(), a.replayCommand(),
		a.pauseCommand(), a.unpauseCommand(), a.lanesCommand(), a.uninstallCommand(),
	} {
		c.GroupID = "steer"
		root.AddCommand(c)
	}
	for _, c := range root.Commands() {
		c.Args = withUsage(c.Args)
	}
	return root
}

// withUsage returns a check of arguments whose error shows how the command is called.
func withUsage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return fmt.Errorf("%w: call it as %s", err, c.UseLine())
		}
		return nil
	}
}

// do returns the function of a command that ends after the timeout and has connections.
func (a *app) do(command func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return a.connected(command, func(*cobra.Command) bool { return true })
}

// doLong returns the function of a command that ends after the timeout only if one is given.
func (a *app) doLong(command func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return a.connected(command, func(c *cobra.Command) bool { return c.Flags().Changed("timeout") })
}

func (a *app) connected(
	command func(ctx context.Context, args []string) error, limited func(*cobra.Command) bool,
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		ctx := c.Context()
		if limited(c) {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, a.timeout, fmt.Errorf("no answer within %v (--timeout)", a.timeout))
			defer cancel()
		}
		if err := a.conn.open(ctx); err != nil {
			return err
		}
		defer a.conn.close()
		err := command(ctx, args)
		if err != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return err
	}
}

// hidden returns text without the keys that were named, if keys are not to be shown.
func (a *app) hidden(text string) string {
	if !a.hash {
		return text
	}
	for key := range a.shown {
		text = hideIn(text, key)
	}
	return text
}

// hideIn replaces a key in a text by its hash, as it is and as in quotes of Go and of shells, wherever it is no part of a longer word.
func hideIn(text, key string) string {
	quoted := strconv.Quote(key)
	for _, form := range []string{key, quoted[1 : len(quoted)-1], strings.ReplaceAll(key, "'", `'\''`)} {
		if form != "" {
			text = replaceWords(text, form, logsafe.Keys([]string{key})[0])
		}
	}
	return text
}

// replaceWords replaces a word where no letter or digit is beside it.
func replaceWords(text, word, by string) string {
	var b strings.Builder
	for rest, before := text, ' '; ; {
		i := strings.Index(rest, word)
		if i < 0 {
			b.WriteString(rest)
			return b.String()
		}
		if i > 0 {
			before, _ = utf8.DecodeLastRuneInString(rest[:i])
		}
		after, _ := utf8.DecodeRuneInString(rest[i+len(word):])
		b.WriteString(rest[:i])
		if isPart(before) && isPart(first(word)) || isPart(after) && isPart(last(word)) {
			b.WriteString(word)
		} else {
			b.WriteString(by)
		}
		before, rest = last(word), rest[i+len(word):]
	}
}

func isPart(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

func first(word string) rune {
	r, _ := utf8.DecodeRuneInString(word)
	return r
}

func last(word string) rune {
	r, _ := utf8.DecodeLastRuneInString(word)
	return r
}
