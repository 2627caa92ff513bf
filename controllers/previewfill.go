package controllers

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
)

// fill says what the change of spec.warmFrom does.
func (p *preview) fill() {
	was, is := p.before.Spec.WarmFrom, p.after.Spec.WarmFrom
	say := func(format string, args ...any) { p.Fill = append(p.Fill, fmt.Sprintf(format, args...)) }
	switch {
	case equality.Semantic.DeepEqual(was, is):
		return
	case is == nil:
		say("a Job that copies ends; what was copied from %s stays", build.WarmSays(p.before))
		if was.OnMiss {
			say("routers restart, and ask it no more")
		}
		return
	}
	source, asks := build.WarmSays(p.after), is.OnMiss && is.Volumes == nil
	if result := observe.WarmRecord(p.after).Result; result != action.WarmOpen {
		say("nothing is copied: of %s the cluster is %s, and kubectl mc warm %s copies again", source, result, p.after.Name)
	} else {
		if w := &p.plan.Warming; w.Phase == plan.WarmWaits && w.Message != "" {
			say("the copy from %s waits: %s", source, w.Message)
		}
		say("%s", p.clientsWait(is))
		for _, sentence := range p.copies(is, source) {
			say("%s", sentence)
		}
		say("the cluster is Ready; if %s can't be copied, after %s without it", source, patience(is))
	}
	if before := was != nil && was.OnMiss && was.Volumes == nil; asks != before {
		say("routers restart: %s", map[bool]string{true: "they ask it for what members miss, as long as the spec says so", false: "they ask it no more"}[asks])
	}
}

func patience(from *cachev1alpha1.WarmSource) string {
	if from.Patience == nil || from.Patience.Duration <= 0 {
		return "a kubectl mc skip"
	}
	return from.Patience.Duration.String()
}

// clientsWait says what clients have meanwhile.
func (p *preview) clientsWait(from *cachev1alpha1.WarmSource) string {
	switch {
	case from.Until != cachev1alpha1.WarmReady:
		return "clients use the members meanwhile: what they store stays, and what they delete before it is copied comes back"
	case len(p.before.Status.Servers) > 0:
		return "clients have the members already, so until: Ready changes nothing for them"
	}
	return "clients are told of no member until the copy has ended"
}

// copies says how the source is copied.
func (p *preview) copies(from *cachev1alpha1.WarmSource, source string) (all []string) {
	fits := "if the members have too little memory for that, nothing is copied (TargetTooSmall)"
	if from.OnShortage == cachev1alpha1.ShortageProceed {
		fits = "if the members have too little memory for that, the most recently used items are copied, as many as fit"
	}
	once := "until a pass brings less than a hundredth"
	if from.Volumes != nil {
		once = "claim by claim"
		var names []string
		if p.State.Warm != nil {
			for i := range p.State.Warm.Claims {
				names = append(names, p.State.Warm.Claims[i].Name)
			}
		}
		const most = 8
		list := strings.Join(names[:min(len(names), most)], ", ")
		switch more := len(names) - most; {
		case len(names) == 0:
			list = "each claim"
		case more > 0:
			list += fmt.Sprintf(" and %d more", more)
		}
		if len(names) > 1 && from.OnShortage != cachev1alpha1.ShortageProceed {
			all = append(all, fmt.Sprintf("a Job for each of %d claims counts what it has (%s); %s", len(names), list, fits))
		} else {
			all = append(all, fmt.Sprintf("a Job reads %s; %s", list, fits))
		}
	} else {
		refuses := "if it refuses, nothing is copied (ListingRefused)"
		if from.OnMiss {
			refuses = "if it refuses, only the routers ask it"
		}
		asks := ""
		if from.Discovery != "" {
			asks = "asks it for its servers, and "
		}
		all = append(all, fmt.Sprintf("a Job reads %s: it %slists the keys and sizes of all servers, which are not known before; %s; %s", source, asks, refuses, fits))
	}
	return append(all, fmt.Sprintf("each item is added at the member where clients look for it, and what is there stays, %s%s", once, atMost(from.RateLimit)))
}

// atMost says how fast.
func atMost(limit *cachev1alpha1.RateLimit) string {
	if limit == nil {
		return ""
	}
	var parts []string
	if n := ptr.Deref(limit.ItemsPerSecond, 0); n > 0 {
		parts = append(parts, fmt.Sprintf("%d items", n))
	}
	if limit.BytesPerSecond != nil {
		parts = append(parts, limit.BytesPerSecond.String()+" bytes")
	}
	return fmt.Sprintf(", at most %s a second", strings.Join(parts, " and "))
}
