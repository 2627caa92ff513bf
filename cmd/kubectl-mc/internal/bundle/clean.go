// Package bundle makes an archive for support: objects, events, logs and statistics, without values, keys and
// secrets. It keeps what is known to be harmless, and leaves out the rest.
package bundle

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
)

// hidden stands for what is left out.
const hidden = "…"

// Cleaner leaves out what may be a value, a key or a secret.
type Cleaner struct {
	// Names may be quoted: those of Kubernetes objects. What else is quoted in a message may be a key.
	Names map[string]bool
	// Others: the drainer is a person's, so that the operator's messages about it may have its words.
	Others bool
}

// quoted is a string in quotes, as Go prints it.
var quoted = regexp.MustCompile(`"(?:\\.|[^"\\])*"?`)

// Text hides what is quoted in a message, except names. A message that is JSON is cleaned as an object.
func (c *Cleaner) Text(s string) string {
	if trimmed := strings.TrimSpace(s); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		var v any
		if json.Unmarshal([]byte(trimmed), &v) == nil {
			text, err := json.Marshal(c.Object(v))
			if err == nil {
				return string(text)
			}
		}
	}
	return quoted.ReplaceAllStringFunc(s, func(q string) string {
		if plain, err := strconv.Unquote(q); err == nil && c.Names[plain] {
			return q
		}
		return `"` + hidden + `"`
	})
}

// Containers that the operator makes. Other containers are a person's, and their arguments may have anything.
var ours = []string{"memcached", "drainer", "router", "install", "manager"}

// Object cleans what was decoded from JSON.
func (c *Cleaner) Object(v any) any {
	switch v := v.(type) {
	case string:
		return c.Text(v)
	case []any:
		for i := range v {
			v[i] = c.Object(v[i])
		}
		return v
	case map[string]any:
		return c.fields(v)
	}
	return v
}

func (c *Cleaner) fields(v map[string]any) map[string]any {
	if v["reason"] == cachev1alpha1.ReasonCrashLoop {
		v["message"] = hidden // it ends with the container's last words
	}
	for field, value := range v {
		switch field {
		case "managedFields", "stringData", "binaryData", "volumeAttributes", "options":
			delete(v, field)
		case "annotations":
			v[field] = c.annotations(value)
		case "terminated", "waiting":
			v[field] = c.lastWords(value)
		case "env":
			v[field] = c.env(value)
		case "containers", "initContainers", "ephemeralContainers":
			v[field] = c.containers(value)
		default:
			v[field] = c.Object(value)
		}
	}
	return v
}

// annotations are those of the operator: others may have a whole manifest.
func (c *Cleaner) annotations(value any) any {
	all, is := value.(map[string]any)
	if !is {
		return hidden
	}
	kept := map[string]any{}
	for key, v := range all {
		if strings.HasPrefix(key, "cache.example.com/") {
			kept[key] = c.Object(v)
		}
	}
	return kept
}

// lastWords of a container may be the end of its log. Those of the operator's programs are JSON.
func (c *Cleaner) lastWords(value any) any {
	state, is := value.(map[string]any)
	if !is {
		return hidden
	}
	if message, has := state["message"].(string); has && !strings.HasPrefix(message, "{") {
		state["message"] = hidden
	}
	return c.fields(state)
}

// env are the names of variables.
func (c *Cleaner) env(value any) any {
	all, is := value.([]any)
	if !is {
		return hidden
	}
	for i := range all {
		one, is := all[i].(map[string]any)
		if !is {
			all[i] = hidden
			continue
		}
		if _, has := one["value"]; has {
			one["value"] = hidden
		}
	}
	return all
}

// containers that are a person's keep their name, image and resources.
func (c *Cleaner) containers(value any) any {
	all, is := value.([]any)
	if !is {
		return hidden
	}
	for i := range all {
		one, is := all[i].(map[string]any)
		if !is {
			all[i] = hidden
			continue
		}
		if name, _ := one["name"].(string); slices.Contains(ours, name) {
			all[i] = c.fields(one)
			continue
		}
		kept := map[string]any{}
		for _, field := range []string{"name", "image", "resources"} {
			if v, has := one[field]; has {
				kept[field] = v
			}
		}
		all[i] = kept
	}
	return all
}

// Lines cleans a log: those of the operator's programs stay, without what they quote. memcached's own lines have keys
// when it is told to be verbose, and other containers write what they like.
func (c *Cleaner) Lines(lines []kube.Line) (kept []kube.Line, leftOut int) {
	for _, l := range lines {
		drainers := strings.HasPrefix(l.Text, "drainer: ") || l.Program != "memcached" && strings.HasPrefix(l.Text, "{")
		if !l.Event && (l.Program == "" || l.Program != "manager" && !drainers) {
			leftOut++
			continue
		}
		if c.Others && l.Event {
			l.Text, _, _ = strings.Cut(l.Text, " ") // the reason
		}
		if strings.Contains(l.Text, cachev1alpha1.ReasonCrashLoop) || c.Others && !l.Event { // with the container's last words
			leftOut++
			continue
		}
		if what, _, probe := strings.Cut(l.Text, "probe failed: "); probe && l.Event {
			l.Text = what + "probe failed: " + hidden
		}
		l.Text = c.Text(l.Text)
		kept = append(kept, l)
	}
	return kept, leftOut
}

var number, statistic = regexp.MustCompile(`^[0-9.]{1,32}$`), regexp.MustCompile(`^[a-z0-9_:]{1,64}$`)

// Statistics keeps numbers and versions: what else a memcached tells of itself may be anything.
func Statistics(all map[string]string) map[string]string {
	kept := map[string]string{}
	for name, value := range all {
		if number.MatchString(value) && statistic.MatchString(name) {
			kept[name] = value
		}
	}
	return kept
}

// othersWords hides messages that may have the words of a person's drainer.
func othersWords(d *cachev1alpha1.StatefulSetDrain) {
	for i := range d.Status.Drains {
		d.Status.Drains[i].Message = hidden
	}
	for i := range d.Status.LastDrains {
		d.Status.LastDrains[i].Message = hidden
	}
	for i := range d.Status.Conditions {
		d.Status.Conditions[i].Message = hidden
	}
}
