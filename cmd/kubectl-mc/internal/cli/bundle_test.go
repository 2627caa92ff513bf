package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// A person who interrupts support-bundle gets no archive: half of one would look complete.
func TestAnInterruptedSupportBundleWritesNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	const group = "/apis/cache.example.com/v1alpha1"
	const version = `{"groupVersion":"cache.example.com/v1alpha1","version":"v1alpha1"}`
	const its = `"name":"cache.example.com","versions":[` + version + `],"preferredVersion":` + version
	answers := map[string]string{
		"/api":                    `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":                   `{"kind":"APIGroupList","apiVersion":"v1","groups":[{` + its + `}]}`,
		"/apis/cache.example.com": `{"kind":"APIGroup","apiVersion":"v1",` + its + `}`,
		group: `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"cache.example.com/v1alpha1",
			"resources":[{"name":"memcacheds","singularName":"memcached","kind":"Memcached","namespaced":true,"verbs":["get","list"]}]}`,
		group + "/namespaces/shop/memcacheds/cache": `{"kind":"Memcached","apiVersion":"cache.example.com/v1alpha1","metadata":{"name":"cache","namespace":"shop"}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, has := answers[r.URL.Path]
		if !has {
			interrupt() // in the midst of reading
			http.Error(w, "there is no more", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
	}))
	defer server.Close()

	flags := genericclioptions.NewConfigFlags(false)
	namespace := "shop"
	flags.APIServer, flags.Namespace = &server.URL, &namespace
	var out, errOut bytes.Buffer
	folder := t.TempDir()
	root := newRoot(&command{flags: flags, io: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}})
	root.SetArgs([]string{"support-bundle", "cache", "--file=" + filepath.Join(folder, "cache.tar")})
	err := root.ExecuteContext(ctx)
	if err == nil || !strings.Contains(err.Error(), "interrupted") || strings.Contains(out.String(), "written") {
		t.Errorf("it ended with %v\n%s%s", err, &out, &errOut)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) > 0 {
		t.Errorf("there are files: %v %v", files, err)
	}
}
