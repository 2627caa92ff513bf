package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is a regular file of an image, owned by root.
type file struct {
	path    string
	mode    int64
	content []byte
}

// epoch is the time of every file and of the image, so that the same content
// gives the same image.
var epoch = time.Unix(0, 0).UTC()

// static reads a program, and checks that it runs without libraries.
func static(target, source string) (file, error) {
	if source == "" {
		return file{}, fmt.Errorf("which file is to be %s?", target)
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return file{}, err
	}
	binary, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return file{}, fmt.Errorf("%s is not a Linux program: %w", source, err)
	}
	if interpreter(binary) != "" {
		return file{}, fmt.Errorf("%s is not static; build it with CGO_ENABLED=0", source)
	}
	return file{path: target, mode: 0o755, content: content}, nil
}

// interpreter returns the loader that a program needs; a static one has none.
func interpreter(binary *elf.File) string {
	for _, part := range binary.Progs {
		if part.Type == elf.PT_INTERP {
			text, err := io.ReadAll(part.Open())
			if err == nil {
				return strings.TrimRight(string(text), "\x00")
			}
		}
	}
	return ""
}

// write writes an image of one layer as one file, in the format of `docker save`.
func write(imageName, output, architecture string, files []file, config v1.Config) error {
	tag, err := name.NewTag(imageName)
	if err != nil {
		return err
	}
	image, err := ofFiles(architecture, files, config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	// No program may load half a file.
	next := output + ".new"
	if err := tarball.WriteToFile(next, tag, image); err != nil {
		return err
	}
	return os.Rename(next, output)
}

// ofFiles makes an image of one layer.
func ofFiles(architecture string, files []file, config v1.Config) (v1.Image, error) {
	content, err := archive(files)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, configFile(image, architecture, config))
}

func configFile(image v1.Image, architecture string, config v1.Config) *v1.ConfigFile {
	result, err := image.ConfigFile()
	if err != nil {
		result = &v1.ConfigFile{}
	}
	result = result.DeepCopy()
	result.OS, result.Architecture = "linux", architecture
	result.Created = v1.Time{Time: epoch}
	result.Config = config
	return result
}

// archive makes a layer of the files, sorted, and of their directories, which come first.
func archive(files []file) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	made := map[string]bool{"/": true}
	for _, one := range files {
		for _, directory := range parents(one.path) {
			if made[directory] {
				continue
			}
			made[directory] = true
			header := &tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(directory, "/") + "/", Mode: 0o755, ModTime: epoch}
			if err := writer.WriteHeader(header); err != nil {
				return nil, err
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(one.path, "/"), Mode: one.mode,
			Size: int64(len(one.content)), ModTime: epoch}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(one.content); err != nil {
			return nil, err
		}
	}
	err := writer.Close()
	return buffer.Bytes(), err
}

// parents returns the directories above a path, the outermost first.
func parents(file string) []string {
	var list []string
	for directory := path.Dir(file); directory != "/"; directory = path.Dir(directory) {
		list = append(list, directory)
	}
	slices.Reverse(list)
	return list
}
