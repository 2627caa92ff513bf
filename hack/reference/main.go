// Command reference writes docs/reference.md from the CRD, which is generated
// from the API types: reference CRD >FILE.
//
// With --slim it prints the CRD instead, with the client libraries that package routing knows, without the
// descriptions within Kubernetes' own types, and with the bounds there that the CRD's rules need. kubectl apply keeps
// the whole object in an annotation, of 262,144 bytes at most.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"example.com/memcached-operator/drainer/routing"
)

// schema is a field in an OpenAPI v3 schema, with the parts that are used here.
type schema struct {
	Type        string             `json:"type"`
	Description string             `json:"description"`
	Default     json.RawMessage    `json:"default"`
	Enum        []json.RawMessage  `json:"enum"`
	Minimum     *float64           `json:"minimum"`
	Maximum     *float64           `json:"maximum"`
	MaxItems    *int               `json:"maxItems"`
	MaxLength   *int               `json:"maxLength"`
	Required    []string           `json:"required"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	IntOrString bool               `json:"x-kubernetes-int-or-string"`
	Preserved   bool               `json:"x-kubernetes-preserve-unknown-fields"`
	Rules       []struct {
		Message string `json:"message"`
	} `json:"x-kubernetes-validations"`
}

type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind     string `json:"kind"`
			Singular string `json:"singular"`
		} `json:"names"`
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				Root schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// kubernetes are the fields whose type is Kubernetes' own, and not taken apart here.
var kubernetes = map[string]string{
	"affinity": "Affinity", "tolerations": "list of Toleration",
	"topologySpreadConstraints": "list of TopologySpreadConstraint",
	"imagePullSecrets":          "list of LocalObjectReference",
	"resources":                 "ResourceRequirements",
	"securityContext":           "PodSecurityContext",
	"clients":                   "list of NetworkPolicyPeer",
	"monitoring":                "list of NetworkPolicyPeer",
	"conditions":                "list of Condition",
	"env":                       "list of EnvVar",
	"volumes":                   "list of Volume",
	"volumeMounts":              "list of VolumeMount",
	"containers":                "list of Container",
	"initContainers":            "list of Container",
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "--slim" {
		return slim(args[1])
	}
	if len(args) != 1 {
		return fmt.Errorf("give the CRD's file, not %d arguments", len(args))
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var d definition
	if err := yaml.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("read %s: %w", args[0], err)
	}
	fmt.Print(page(&d))
	return nil
}

func slim(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	slimFields(crd, false)
	bound(crd)
	nameClients(crd)
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	fmt.Printf("---\n%s", out)
	return nil
}

// slimFields removes descriptions within fields of Kubernetes' own types.
func slimFields(value any, within bool) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			slimFields(element, within)
		}
	case map[string]any:
		for name, field := range value {
			if _, text := field.(string); within && text && name == "description" {
				delete(value, name)
				continue
			}
			if properties, ok := field.(map[string]any); ok && name == "properties" {
				for name, field := range properties {
					slimField(field, within, within || kubernetes[name] != "")
				}
				continue
			}
			slimFields(field, within)
		}
	}
}

// slimField keeps the field's own description, unless the field is within such a type.
func slimField(field any, within, inner bool) {
	schema, ok := field.(map[string]any)
	if !ok {
		return
	}
	description, described := schema["description"]
	slimFields(schema, inner)
	if described && !within {
		schema["description"] = description
	}
}

// bounds are those of fields within Kubernetes' own types, by the field that contains them. The API server
// refuses a rule (CEL) that might take long, as one over a list or a string without a bound might.
var bounds = map[string]map[string]map[string]any{
	"containers":     {"ports": {"maxItems": 16}, "volumeMounts": {"maxItems": 64}, "volumeDevices": {"maxItems": 16}},
	"initContainers": {"ports": {"maxItems": 16}, "volumeMounts": {"maxItems": 64}, "volumeDevices": {"maxItems": 16}},
	"volumeMounts":   {"mountPath": {"maxLength": 512}},
}

func bound(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			bound(element)
		}
	case map[string]any:
		for name, field := range value {
			bound(field)
			for inner, set := range bounds[name] {
				if schema := within(field, "items", "properties", inner); schema != nil {
					maps.Copy(schema, set)
				}
			}
		}
	}
}

// nameClients sets the values of each field routing.client.
func nameClients(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			nameClients(element)
		}
	case map[string]any:
		for name, field := range value {
			nameClients(field)
			if client := within(field, "properties", "client"); name == "routing" && client != nil {
				client["enum"] = routing.Clients()
			}
		}
	}
}

// within returns the object at the path; nil if there is none.
func within(value any, path ...string) map[string]any {
	fields, _ := value.(map[string]any)
	for _, name := range path {
		fields, _ = fields[name].(map[string]any)
	}
	return fields
}

func page(d *definition) string {
	var b, head strings.Builder
	head.WriteString("<!-- Generated from the API types by `make manifests`: edit api/v1alpha1 instead. -->\n")
	fmt.Fprintf(&head, "# Reference\n\n`kubectl explain %s.spec` says the same. Types with a capital letter are Kubernetes' own.\nA duration is written as 1h30m; h is its longest unit. A spec that breaks a rule is refused, with the reason", d.Spec.Names.Singular)
	for _, v := range d.Spec.Versions {
		root := v.Schema.Root
		fmt.Fprintf(&b, "\n## %s, %s/%s\n\n%s\n", d.Spec.Names.Kind, d.Spec.Group, v.Name, flow(root.Description))
		rules(&b, &root)
		for _, name := range []string{"spec", "status"} {
			section(&b, name, root.Properties[name], map[string]string{})
		}
	}
	if strings.Contains(b.String(), cut) {
		head.WriteString(", and with the list of a rule that ends in …")
	}
	return head.String() + ".\n" + b.String()
}

// section writes the fields of an object, and then those of the objects in it.
func section(b *strings.Builder, path string, s *schema, written map[string]string) {
	fmt.Fprintf(b, "\n### %s\n\n%s\n", path, flow(s.Description))
	fields, _ := json.Marshal(s.Properties) // what was read from JSON can be marshalled
	if same := written[string(fields)]; same != "" {
		fmt.Fprintf(b, "\nThe fields are those of `%s`.\n", same)
		return
	}
	written[string(fields)] = path
	if rules(b, s); len(s.Rules) > 0 {
		fmt.Fprint(b, "\nFields:\n")
	}
	fmt.Fprintln(b)
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	told := map[string]string{}
	needed := !strings.HasPrefix(path, "status") // of a person
	var objects []string                         // that are required. The sections of all objects follow
	for _, name := range names {
		f := s.Properties[name]
		what, meaning := kind(name, f, needed && slices.Contains(s.Required, name)), meaning(name, f)
		if below, of := inner(path, name, f); of == nil {
			meaning += messages(name, f, told)
		} else {
			link := "#" + anchor.Replace(strings.ToLower(below))
			if what = fmt.Sprintf("[%s](%s)", what, link); of == f {
				if slices.Contains(s.Required, name) {
					objects = append(objects, fmt.Sprintf("[`%s`](%s)", name, link))
				}
				continue
			}
		}
		fmt.Fprintf(b, "- `%s` (%s)%s\n", name, what, meaning)
	}
	if len(objects) > 0 {
		fmt.Fprintf(b, "\nRequired: %s\n", strings.Join(objects, ", "))
	}
	for _, name := range names {
		if below, of := inner(path, name, s.Properties[name]); of != nil {
			section(b, below, of, written)
		}
	}
}

// meaning is a field's comment without the words that the row has before it: the field's name, and its default.
func meaning(name string, f *schema) string {
	text := flow(f.Description)
	for _, plain := range []string{strings.Trim(string(f.Default), `"`), "none"} {
		text = strings.TrimSuffix(text, " Defaults to "+plain+".")
	}
	for _, verb := range []string{"is", "are"} {
		if noun, found := strings.CutPrefix(text, name+" "+verb+" "); found {
			return ": " + noun
		}
	}
	if sentence, found := strings.CutPrefix(text, name+" "); found {
		return " " + sentence
	}
	return ": " + text
}

// anchor makes a section's path the anchor of its title.
var anchor = strings.NewReplacer(".", "", "[]", "")

// inner returns the path and the schema of the section that a field has; nil if it has none.
func inner(path, name string, f *schema) (below string, of *schema) {
	switch {
	case kubernetes[name] != "":
	case len(f.Properties) > 0:
		return path + "." + name, f
	case f.Items != nil && len(f.Items.Properties) > 0:
		return path + "." + name + "[]", f.Items
	}
	return "", nil
}

func rules(b *strings.Builder, s *schema) {
	if len(s.Rules) == 0 {
		return
	}
	fmt.Fprint(b, "\nRules:\n\n")
	seen := map[string]bool{}
	for _, r := range s.Rules {
		if rule := withoutReason(r.Message); !seen[rule] {
			fmt.Fprintf(b, "- %s\n", rule)
			seen[rule] = true
		}
	}
}

// withoutReason returns a rule without its reason, or the advice in place of one, which the API server gives
// when it refuses a spec.
func withoutReason(message string) string {
	if end := strings.LastIndex(message, ": "); end > 0 && strings.Contains(message[:end], " ") {
		message = message[:end]
	}
	return message
}

// messages are those of the rules of a field that has no section, without its name. told has the rules, and the
// lists in rules, of the fields before it.
func messages(name string, f *schema, told map[string]string) string {
	out, bare, seen := "", "", map[string]bool{}
	for _, r := range f.Rules {
		if !seen[r.Message] && !lasts.MatchString(r.Message) {
			_, words, _ := strings.Cut(r.Message, name)
			words = strings.TrimLeft(words, ": ")
			rule, list, found := strings.Cut(words, ": ")
			if found && told[list] != "" {
				words = rule
			} else if found {
				told[list] = name
			}
			out += " Rule: " + withoutList(words+".")
			bare += rule + "\n"
		}
		seen[r.Message] = true
	}
	if same := told[bare]; same != "" && bare != "" {
		return fmt.Sprintf(" The rules are those of `%s`.", same)
	}
	told[bare] = name
	return out
}

// longestList is how many words the list in a rule has here at most, and cut stands for a longer one.
const (
	longestList = 10
	cut         = ": …"
)

// withoutList returns a rule without a long list, which the API server gives when it refuses a spec.
func withoutList(rule string) string {
	if said, list, found := strings.Cut(rule, ": "); found && len(strings.Fields(list)) > longestList {
		return said + cut
	}
	return rule
}

// lasts matches the rule of a duration, whose bounds are part of its kind.
var lasts = regexp.MustCompile(`must be from (\w+) to (\w+), such as \w+; the longest unit is h$`)

// longestName is how many characters a name in Kubernetes has at most, which goes without saying.
const longestName = 253

// kind describes a field's type, default and bounds.
func kind(name string, f *schema, required bool) string {
	parts := []string{typeName(name, f)}
	if required {
		parts = append(parts, "required")
	}
	if len(f.Default) > 0 && string(f.Default) != "{}" && !strings.Contains(f.Description, "(the default)") {
		parts = append(parts, "default `"+strings.Trim(string(f.Default), `"`)+"`")
	}
	if values := untold(f); len(values) > 0 {
		parts = append(parts, "`"+strings.Join(values, "`, `")+"`")
	}
	for _, r := range f.Rules {
		if bounds := lasts.FindStringSubmatch(r.Message); bounds != nil {
			parts[0] = "duration" // as metav1.Duration: 1h30m
			parts = append(parts, bounds[1]+" to "+bounds[2])
		}
	}
	switch {
	case f.Minimum != nil && f.Maximum != nil:
		parts = append(parts, fmt.Sprintf("%.0f to %.0f", *f.Minimum, *f.Maximum))
	case f.Minimum != nil:
		parts = append(parts, fmt.Sprintf("%.0f at least", *f.Minimum))
	}
	if f.MaxItems != nil {
		parts = append(parts, fmt.Sprintf("%d items at most", *f.MaxItems))
	}
	if f.MaxLength != nil && *f.MaxLength != longestName {
		parts = append(parts, fmt.Sprintf("%d characters at most", *f.MaxLength))
	}
	return strings.Join(parts, "; ")
}

// untold returns the values that the field may have, unless its comment has each of them.
func untold(f *schema) []string {
	values, told := make([]string, len(f.Enum)), true
	for i, e := range f.Enum {
		values[i] = strings.Trim(string(e), `"`)
		told = told && strings.Contains(f.Description, values[i])
	}
	if told {
		return nil
	}
	return values
}

func typeName(name string, f *schema) string {
	switch {
	case kubernetes[name] != "":
		return kubernetes[name]
	case f.IntOrString && name == "maxUnavailable":
		return "integer or share"
	case f.IntOrString:
		return "quantity"
	case f.Preserved:
		return "PodSpec"
	case f.Items != nil:
		return "list of " + typeName("", f.Items)
	case f.Type == "object" && len(f.Properties) == 0:
		return "map of strings"
	}
	return f.Type
}

// flow joins the lines of a comment.
func flow(text string) string { return strings.Join(strings.Fields(text), " ") }
