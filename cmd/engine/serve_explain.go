package main

import (
	"context"
	"fmt"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/scheduler"
)

// explain says what happened to the requests of a name.
func (i *instance) explain(ctx context.Context, name string) (admin.Explained, error) {
	ctx, cancel := context.WithTimeout(ctx, statePatience)
	defer cancel()
	found, err := i.engine.engine.Explain(ctx, name)
	if err != nil {
		return admin.Explained{}, err
	}
	if len(found) == 0 {
		return admin.Explained{}, fmt.Errorf("no request %q: it is not here, or among those that "+
			"ended longest ago; its id is in the answer's X-Request-Id and in the log", name)
	}
	x := admin.Explained{Node: i.who.Node}
	for _, f := range found {
		x.Requests = append(x.Requests, i.explanation(f))
	}
	return x, nil
}

// explanation words one request.
func (i *instance) explanation(f engine.Explained) admin.Explanation {
	x := admin.Explanation{
		ID: f.RequestID, Label: f.ID, Number: uint64(f.Number), Tenant: orDefault(f.Tenant),
		Kind: kindName(f.Kind), Reason: f.Reason, Policy: f.Report.Policy,
		Prompt: f.PromptTokens, Cached: f.Cached, Output: f.OutputTokens,
		Total: f.Total.Seconds(), Queue: f.Report.Queue.Seconds(),
		Prefill: f.Report.Prefill.Seconds(), FirstToken: f.FirstToken.Seconds(),
		Decode: f.Decode.Seconds(), Transfer: f.Report.Transfer.Seconds(),
		BytesSent: f.Report.BytesSent, Lost: f.Lost,
	}
	if f.Live {
		x.State = f.State.String()
	}
	if f.Err != nil {
		x.Error = f.Err.Error()
	}
	for _, m := range f.Moments {
		x.Lines = append(x.Lines, i.line(m))
	}
	return x
}

// kindName is the engine action in the words of the ABI.
func kindName(k scheduler.Kind) string {
	return [...]string{"local", "remote_send", "prepare_receive"}[k]
}

// line words one moment. Who decided is told where somebody did.
func (i *instance) line(m scheduler.Moment) admin.Line {
	l := admin.Line{
		From: m.From.Seconds(), To: m.To.Seconds(), What: m.What.String(), Step: m.Step,
		Steps: m.Steps, Tokens: m.Tokens, Last: m.Last, Reason: m.Reason,
	}
	switch m.What {
	case scheduler.PassedOver, scheduler.Refused, scheduler.Skipped, scheduler.WasShed:
		l.Policy = m.Policy
	case scheduler.Preempted:
		if m.Why == abi.PreemptedPolicy {
			l.Policy = m.Policy
		}
	}
	switch m.What {
	case scheduler.Refused:
		l.Why = abi.RefusalName(uint64(m.Why))
	case scheduler.Preempted:
		l.Why = abi.PreemptedName(m.Why)
	case scheduler.Ended:
		l.Why = [...]string{"stop", "length", "cancelled", "error"}[m.Why]
	}
	if m.Reason != 0 && i.policies != nil {
		l.Words = i.policies.ReasonWords(m.Policy, m.Reason)
	}
	l.Policy = shownArrangement(l.Policy)
	return l
}
