package etcdlock_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/railtoken/railtoken/internal/testing/lockhistorytest"
)

// linearizable asks porcupine about the events of one key.
func linearizable(history []lockhistorytest.Operation) bool {
	var all []porcupine.Operation
	for _, op := range history {
		all = append(all, porcupine.Operation{ClientId: op.Client, Input: op.Event, Call: op.Call, Return: op.Return})
	}
	model := porcupine.Model{Init: lockhistorytest.Init, Step: lockhistorytest.Step}
	return porcupine.CheckOperationsTimeout(model, all, time.Minute) == porcupine.Ok
}

func TestTheJudgeRefusesBadHistories(t *testing.T) {
	t.Parallel()
	lockhistorytest.JudgeRefusesBadHistories(t, linearizable)
}
