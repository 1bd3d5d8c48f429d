package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect/explain"
	"github.com/railtoken/railtoken/internal/doctor"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/locking"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain TASK", Short: "explain why a task does not run", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTasks,
		SuggestFor: []string{"why", "task"},
		Long: "explain says why a task does not run: its state, key, holder, position and timer, when it is expected to\n" +
			"start, and what to do. Exit status 2 says that something holds it up.",
		RunE: a.do(func(ctx context.Context, args []string) error { return a.explain(ctx, args[0]) }),
	}
}

func (a *app) explain(ctx context.Context, arg string) error {
	t, err := a.taskOf(ctx, arg)
	if err != nil {
		return err
	}
	e, err := a.explanation(ctx, t)
	if err != nil {
		return err
	}
	if a.hash && e.Key != "" {
		e.Remedy, e.Why, e.Key = hideIn(e.Remedy, e.Key), hideIn(e.Why, e.Key), logsafe.Keys([]string{e.Key})[0]
	}
	if a.json {
		err = a.out.json(e)
	} else {
		a.printExplanation(e)
	}
	if err == nil && e.Cause != explain.Running && e.Cause != explain.Completed {
		err = errFound
	}
	return err
}

func (a *app) explanation(ctx context.Context, t delayqueue.Task) (explain.Explanation, error) {
	return explain.Task(ctx, explain.Options{
		Tasks: a.conn.tasks, Inspector: a.conn.inspector, Redlock: len(a.conn.servers) > 0,
	}, t)
}

func (a *app) printExplanation(e explain.Explanation) {
	row := func(name, value string) {
		if value != "" {
			a.out.printf("%-9s%s\n", name, value)
		}
	}
	task := strings.TrimPrefix(e.Task, "/") // without a queue if only the ID was given
	if e.Type != "" {
		task += " (" + e.Type + ")"
	}
	row("task", task)
	row("state", e.State)
	row("cause", string(e.Cause))
	row("why", e.Why)
	if e.Key != "" {
		row("key", plain(e.Key))
	}
	for _, key := range e.OtherKeys {
		row("or key", plain(key))
	}
	row("worker", e.Worker)
	if e.Worker != "" && e.Key != "" {
		row("waiters", strconv.Itoa(e.Waiters))
	}
	if e.Position > 0 {
		row("place", fmt.Sprintf("%d of %d", e.Position, max(e.Waiters, e.Position)))
	}
	if e.Since != nil {
		times := "once"
		if e.Conflicts != 1 {
			times = fmt.Sprintf("%d times", e.Conflicts)
		}
		row("waiting", fmt.Sprintf("for %s, refused %s", ago(*e.Since), times))
	}
	row("starts", e.Expected)
	for _, also := range e.Also {
		row("also", string(also))
	}
	row("remedy", e.Remedy)
}

func (a *app) doctorCommand() *cobra.Command {
	var skip []string
	var settings doctor.Settings
	c := &cobra.Command{
		Use: "doctor", Short: "find what is wrong before it costs tasks or time", Args: cobra.NoArgs,
		Long: "doctor looks at all servers, queues, waiting tasks and workers, and says what is wrong, what that costs, and how to\n" +
			"fix it. It changes nothing; to check ACL rules it tries commands on a key of its own, as workers do when they start.\n" +
			"Exit status 2 says that it has found something, and 3 that it has found nothing, but could not check everything:\n" +
			"--skip leaves out checks that you do not want.\n\nChecks: " + strings.Join(doctor.Checks(), ", ") + ".",
		RunE: a.doLong(func(ctx context.Context, _ []string) error { return a.doctor(ctx, settings, skip) }),
	}
	c.Flags().StringSliceVar(&skip, "skip", nil, "`checks` to omit")
	c.Flags().DurationVar(&settings.MaxWait, "max-wait", 0, "how long a task may wait for its key (default 5m)")
	c.Flags().DurationVar(&settings.LongRun, "long-run", 0,
		"how long a task may keep others from a key or a slot (default 30s)")
	_ = c.RegisterFlagCompletionFunc("skip", cobra.FixedCompletions(doctor.Checks(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) doctor(ctx context.Context, settings doctor.Settings, skip []string) error {
	for _, name := range skip {
		if !slices.Contains(doctor.Checks(), name) {
			return fmt.Errorf("--skip names %q, which is no check: there are %s", name, strings.Join(doctor.Checks(), ", "))
		}
	}
	cfg := a.conn.config
	settings.TaskCheckInterval, settings.TTL, settings.MaxHold = cfg.TaskCheckInterval, cfg.LockTTL, cfg.MaxHold
	settings.GuardOff, settings.AllowEviction = cfg.LockGuard == locking.GuardOff, cfg.AllowEviction
	report, err := doctor.Examine(ctx, doctor.Sources{
		Tasks: a.conn.tasks, Locks: a.conn.locks, Nodes: a.conn.servers, Inspector: a.conn.inspector, Skip: skip,
		Settings: settings, Progress: a.step,
	})
	a.step("")
	if err != nil {
		return err
	}
	if a.hash {
		for i := range report.Findings {
			report.Findings[i] = hideKey(report.Findings[i])
		}
	}
	if a.json {
		err = a.out.json(report)
	} else {
		a.printReport(report)
	}
	switch {
	case err != nil:
	case len(report.Findings) > 0:
		err = errFound
	case len(report.Unchecked) > 0:
		err = errUnchecked
	}
	return err
}

// hideKey replaces the key in a finding by its hash.
func hideKey(f doctor.Finding) doctor.Finding {
	if f.Key == "" {
		return f
	}
	for _, text := range []*string{&f.Where, &f.What, &f.Cost, &f.Remedy, &f.Command} {
		*text = hideIn(*text, f.Key)
	}
	f.Key = logsafe.Keys([]string{f.Key})[0]
	return f
}

func (a *app) printReport(r doctor.Report) {
	for i, f := range r.Findings {
		if i > 0 {
			a.out.printf("\n")
		}
		if f.Advice && (i == 0 || !r.Findings[i-1].Advice) {
			a.out.printf("Advice:\n\n")
		}
		a.out.printf("%s: %s\n", f.Check, f.Where)
		a.out.printf("  finding  %s\n  cost     %s\n  remedy   %s\n", f.What, f.Cost, f.Remedy)
		if f.Command != "" {
			a.out.printf("  command  %s\n", f.Command)
		}
	}
	if len(r.Unchecked) > 0 {
		if len(r.Findings) > 0 {
			a.out.printf("\n")
		}
		a.out.printf("Not checked:\n")
		for _, u := range r.Unchecked {
			a.out.printf("  %s at %s: %s\n", u.Check, u.Where, u.Why)
		}
	}
	switch unchecked := counted(len(r.Unchecked), "check") + " could not be made"; {
	case len(r.Findings)+len(r.Unchecked) == 0:
		a.out.printf("All is well.\n")
	case len(r.Findings) == 0:
		a.out.printf("\nNothing was found, but %s.\n", unchecked)
	case len(r.Unchecked) == 0:
		a.out.printf("\n%s.\n", counted(len(r.Findings), "finding"))
	default:
		a.out.printf("\n%s; %s.\n", counted(len(r.Findings), "finding"), unchecked)
	}
}

// counted returns a number of things.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// step shows on a terminal what long work is at.
func (a *app) step(text string) {
	if text != "" {
		text += " ..."
	}
	a.errOut.progress(text)
}
