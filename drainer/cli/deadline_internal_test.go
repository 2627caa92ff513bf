package cli

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/move"
)

func TestAReceiptSaysThatTheDeadlineEndedIt(t *testing.T) {
	const deadline = time.Minute
	fails := func(reason string, code int) contract.Receipt {
		return contract.Receipt{Version: 1, Source: "uid", Reason: reason, ExitCode: code}
	}
	for name, test := range map[string]struct {
		move func(context.Context) contract.Receipt
		want string
		code int
		took time.Duration
	}{
		"done before": {
			func(context.Context) contract.Receipt { return contract.Receipt{Version: 1, Source: "uid"} }, "", contract.ExitOK, 0,
		},
		"failed before": {
			func(context.Context) contract.Receipt { return fails("Failed", contract.ExitFailed) }, "Failed", contract.ExitFailed, 0,
		},
		"ended by it": {
			func(ctx context.Context) contract.Receipt {
				<-ctx.Done()
				return move.Failed("uid", ctx.Err())
			}, contract.ReasonDeadlineExceeded, contract.ExitFailed, deadline,
		},
		"done in spite of it": {
			func(ctx context.Context) contract.Receipt {
				<-ctx.Done()
				return contract.Receipt{Version: 1, Source: "uid"}
			}, "", contract.ExitOK, deadline,
		},
		"found corrupt at that moment": {
			func(ctx context.Context) contract.Receipt {
				<-ctx.Done()
				return fails("WarmFileCorrupt", contract.ExitUnrecoverable)
			}, "WarmFileCorrupt", contract.ExitUnrecoverable, deadline,
		},
		"a disk that doesn't answer": {
			func(context.Context) contract.Receipt {
				time.Sleep(time.Hour)
				return contract.Receipt{Version: 1, Source: "uid"}
			}, contract.ReasonDeadlineExceeded, contract.ExitFailed, deadline + afterDeadline,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r := withinDeadline(t.Context(), &contract.Transfer{SourceID: "uid", Deadline: deadline}, test.move)
				took := time.Since(began)
				if r.Reason != test.want || r.ExitCode != test.code || r.Source != "uid" || took != test.took {
					t.Errorf("after %v: %+v", took, r)
				}
				time.Sleep(time.Hour) // in the bubble: afterwards the move that hung has ended
			})
		})
	}
}

func TestASignalIsNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r := withinDeadline(ctx, &contract.Transfer{SourceID: "uid", Deadline: time.Minute}, func(ctx context.Context) contract.Receipt {
			<-ctx.Done()
			return move.Failed("uid", ctx.Err())
		})
		if r.Reason != "Interrupted" {
			t.Errorf("receipt %+v", r)
		}
	})
}
