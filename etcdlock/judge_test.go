package etcdlock_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/railtoken/railtoken/internal/lockhistory"
)

// linearizable asks porcupine about the events of one key.
func linearizable(history []lockhistory.Operation) bool {
	var all []porcupine.Operation
	for _, op := range history {
		all = append(all, porcupine.Operation{ClientId: op.Client, Input: op.Event, Call: op.Call, Return: op.Return})
	}
	model := porcupine.Model{Init: lockhistory.Init, Step: lockhistory.Step}
	return porcupine.CheckOperationsTimeout(model, all, time.Minute) == porcupine.Ok
}

func TestTheJudgeRefusesBadHistories(t *testing.T) {
	t.Parallel()
	lockhistory.JudgeRefusesBadHistories(t, linearizable)
}
