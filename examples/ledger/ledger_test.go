//go:build unix

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
)

var (
	whole     = flag.Bool("whole", false, "move money in all modes on all stores")
	transfers = flag.Int("transfers", 10_000, "transfers per mode of the whole ledger")
	plotFile  = flag.String("plot", "", "SVG `file` of the whole ledger")
)

func TestMain(m *testing.M) {
	if mayBeWorker() {
		return
	}
	leaktest.Verify(dbtest.Stopping(m))
}

func newSQLite(t *testing.T) database {
	t.Helper()
	return database{fence.SQLite, sqliteSource(filepath.Join(t.TempDir(), "ledger.db"))}
}

func newPostgres(t *testing.T) database {
	t.Helper()
	server := dbtest.SharedPostgres(t)
	return database{fence.Postgres, server.URL(server.Database(t))}
}

func newMariaDB(t *testing.T) database {
	t.Helper()
	server := dbtest.SharedMariaDB(t)
	return database{fence.MariaDB, server.Source(server.Database(t))}
}

// The short form of the ledger: one weak mode, and the strong ones, with a few stops and kills.
func TestOnlyStrongModesLoseNothing(t *testing.T) {
	t.Parallel()
	short := plan{Transfers: 240, Accounts: 12, Workers: 4, Stops: 3, Kills: 2, TTL: time.Second}
	for _, tt := range []struct {
		mode mode
		open func(t *testing.T) database
	}{{noLock, newSQLite}, {claimOnEntry, newSQLite}, {inTx, newPostgres}} {
		t.Run(string(tt.mode), func(t *testing.T) {
			t.Parallel()
			r, err := short.measure(t.Context(), tt.open(t), tt.mode)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.verdict(short.Transfers); err != nil {
				t.Error(err)
			}
			if r.stops == 0 || r.kills == 0 || tt.mode.strong() && r.runs[again] == 0 {
				t.Errorf("%d stops, %d kills, runs %v: the ledger was not disturbed", r.stops, r.kills, r.runs)
			}
			var row strings.Builder
			r.print(&row)
			t.Log(row.String())
		})
	}
}

// The whole ledger: see "make ledger".
func TestTheWholeLedgerKeepsItsPromises(t *testing.T) {
	if !*whole {
		t.Skip("run by \"make ledger\"")
	}
	o, err := parse([]string{"-plot", *plotFile}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.Transfers = *transfers
	if err := o.compare(t.Context(), []database{newSQLite(t), newPostgres(t), newMariaDB(t)}, os.Stdout); err != nil {
		t.Error(err)
	}
}

func TestAnAuditFindsLossesAndDuplicates(t *testing.T) {
	t.Parallel()
	ledger, err := newSQLite(t).open()
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.db.Close()
	if err := ledger.reset(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"INSERT INTO railtoken_ledger_journal VALUES (1, 0, 1, 100), (1, 0, 1, 100), (2, 1, 2, 30)",
		"UPDATE railtoken_ledger_accounts SET cents = cents - 100 WHERE id = 0", // one of two transfers
		"UPDATE railtoken_ledger_accounts SET cents = cents + 170 WHERE id = 1",
		"UPDATE railtoken_ledger_accounts SET cents = cents + 30 WHERE id = 2",
	} {
		if _, err := ledger.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ledger.audit(t.Context())
	if want := (findings{done: 2, duplicates: 1, sum: 100, off: 100}); err != nil || got != want {
		t.Errorf("the audit finds %+v, %v; want %+v", got, err, want)
	}
}

func TestAVerdictRefusesEachWrongResult(t *testing.T) {
	t.Parallel()
	good := result{Mode: claimOnEntry, findings: findings{done: 9}}
	if err := good.verdict(9); err != nil {
		t.Error(err)
	}
	for _, f := range []findings{{done: 8}, {done: 9, off: 2}, {done: 9, sum: -1}, {done: 9, duplicates: 1}} {
		if (result{Mode: inTx, findings: f}).verdict(9) == nil {
			t.Errorf("%+v is accepted of a strong mode", f)
		}
	}
	if (result{Mode: redisLock, findings: findings{done: 9}}).verdict(9) == nil {
		t.Error("a weak mode that loses nothing is accepted")
	}
}

func TestAPlotIsWellFormed(t *testing.T) {
	t.Parallel()
	svg := plot([]result{{Dialect: fence.SQLite, Mode: noLock, findings: findings{off: 12345}}, {Dialect: fence.Postgres, Mode: inTx}}, 10)
	for decoder := xml.NewDecoder(strings.NewReader(svg)); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(svg, ">12345<") || !strings.Contains(svg, ">0<") || !strings.Contains(svg, "PostgreSQL, pglock.InTx") {
		t.Error(svg)
	}
}

func TestWrongFlagsAreAUsageError(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-transfers", "5"}, {"-ttl", "10ms"}, {"-unknown"}, {"file"}} {
		var errOut bytes.Buffer
		if got := command(t.Context(), args, io.Discard, &errOut); got != exitUsage || errOut.Len() == 0 {
			t.Errorf("%q: status %d, %q", args, got, errOut.String())
		}
	}
	if modes := modesOn(fence.SQLite); slices.Contains(modes, inTx) {
		t.Errorf("SQLite has the modes %q", modes)
	}
}
