package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// memcachedImage contains Debian's memcached with the libraries that it loads, and nothing else. As in the
// official image, the user is memcache, 11211.
func memcachedImage(ctx context.Context) ([]file, v1.Config, error) {
	files, err := debianProgram(ctx, "memcached", "usr/bin/memcached", "/usr/bin/memcached")
	return append(files, accounts("memcache", 11211)...), v1.Config{
		Cmd:          []string{"memcached"},
		Env:          []string{defaultPath},
		User:         "11211:11211",
		ExposedPorts: map[string]struct{}{"11211/tcp": {}},
	}, err
}

// redisImage is Debian's redis-server with the libraries that it loads, and the
// drainer of its volumes, which starts one.
func redisImage(ctx context.Context, drainer string) ([]file, v1.Config, error) {
	// The package redis-server has a link to this program.
	files, err := debianProgram(ctx, "redis-tools", "usr/bin/redis-check-rdb", "/usr/bin/redis-server")
	if err != nil {
		return nil, v1.Config{}, err
	}
	binary, err := static("/usr/bin/"+filepath.Base(drainer), drainer)
	return append(append(files, binary), accounts("redis", 6379)...), v1.Config{
		Cmd:          []string{"redis-server"},
		Env:          []string{defaultPath},
		User:         "6379:6379",
		ExposedPorts: map[string]struct{}{"6379/tcp": {}},
	}, err
}

// debianProgram is a program of a Debian package, with the libraries that it
// loads. source is its path in the package, target its path in the image.
func debianProgram(ctx context.Context, name, source, target string) ([]file, error) {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is missing: this image is made of Debian's packages; "+
				"elsewhere, use the image of a registry", tool)
		}
	}
	directory, err := os.MkdirTemp("", name+"-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	tree := filepath.Join(directory, "tree")
	if err := unpack(ctx, directory, tree, name); err != nil {
		return nil, err
	}
	program, err := os.ReadFile(filepath.Join(tree, source))
	if err != nil {
		return nil, err
	}
	libraries, err := libraries(tree, program)
	return append(libraries, file{path: target, mode: 0o755, content: program}), err
}

// unpack downloads the package, and the packages of libraries that it depends on, directly or not, and
// unpacks them all into the tree.
func unpack(ctx context.Context, directory, tree, root string) error {
	packages, err := libraryPackages(ctx, root)
	if err != nil {
		return err
	}
	download := exec.CommandContext(ctx, "apt-get", append([]string{"download", "--quiet"}, packages...)...)
	download.Dir = directory
	if output, err := download.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get download %s: %w: %s; `apt-get update` may help",
			strings.Join(packages, " "), err, lastLine(output))
	}
	archives, err := filepath.Glob(filepath.Join(directory, "*.deb"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if output, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", archive, tree).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w: %s", filepath.Base(archive), err, lastLine(output))
		}
	}
	return nil
}

// libraryPackages follows the package's dependencies, but only to packages of libraries: the others (perl,
// adduser) are for installation.
func libraryPackages(ctx context.Context, root string) ([]string, error) {
	output, err := exec.CommandContext(ctx, "apt-cache", "depends", "--important", "--recurse", root).Output()
	if err != nil {
		return nil, fmt.Errorf("apt knows no package %s; run apt-get update", root)
	}
	libraries := map[string][]string{} // on which a package depends
	of := ""
	for line := range strings.Lines(string(output)) {
		if !strings.ContainsAny(line[:1], " |") {
			of = strings.TrimSpace(line)
			continue
		}
		// An alternative, marked by |, is as good as the one after it.
		dependency, found := strings.CutPrefix(strings.TrimLeft(strings.TrimSpace(line), "|"), "Depends: ")
		if found && strings.HasPrefix(dependency, "lib") {
			libraries[of] = append(libraries[of], dependency)
		}
	}
	packages := []string{root}
	for i := 0; i < len(packages); i++ {
		for _, dependency := range libraries[packages[i]] {
			if !slices.Contains(packages, dependency) {
				packages = append(packages, dependency)
			}
		}
	}
	return packages, nil
}

// libraries returns the files that the program loads: its loader, and each library that it or another library
// names.
func libraries(tree string, program []byte) ([]file, error) {
	byName, err := sharedObjects(tree)
	if err != nil {
		return nil, err
	}
	binary, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return nil, err
	}
	needed, err := binary.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	loader := interpreter(binary)
	var files []file
	for i := 0; i < len(needed); i++ {
		source, ok := byName[needed[i]]
		if !ok {
			return nil, fmt.Errorf("no package that it depends on has the library %s", needed[i])
		}
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		target := strings.TrimPrefix(filepath.Dir(source), tree)
		files = append(files, file{path: filepath.Join(target, needed[i]), mode: 0o755, content: content})
		library, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", needed[i], err)
		}
		more, err := library.ImportedLibraries()
		if err != nil {
			return nil, err
		}
		for _, name := range more {
			if !slices.Contains(needed, name) {
				needed = append(needed, name)
			}
		}
	}
	source, ok := byName[filepath.Base(loader)]
	if !ok {
		return nil, errors.New("no package has the loader " + loader)
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return nil, err
	}
	return append(files, file{path: loader, mode: 0o755, content: content}), nil
}

// sharedObjects finds the libraries of a tree by name, where the loader finds them: in /lib and /usr/lib, and
// in the architecture's directory of each.
func sharedObjects(tree string) (map[string]string, error) {
	found := map[string]string{}
	for _, pattern := range []string{"lib/*", "usr/lib/*", "lib/*/*", "usr/lib/*/*"} {
		paths, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if _, known := found[filepath.Base(path)]; known || !strings.Contains(filepath.Base(path), ".so") {
				continue
			}
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				found[filepath.Base(path)] = path
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	return found, nil
}

func lastLine(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return lines[len(lines)-1]
}
