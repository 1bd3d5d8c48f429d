package docker

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// nothing is a handler that has nothing to do.
func nothing(context.Context, string) error { return nil }

// root is the root of the repository, seen from here.
const root = ".."

// instruction is one instruction of a Dockerfile.
type instruction struct{ name, args string }

// stage is the instructions from one FROM to the next.
type stage struct {
	image, as string
	steps     []instruction
}

// all returns the arguments of each instruction with this name.
func (s stage) all(name string) []string {
	var args []string
	for _, step := range s.steps {
		if step.name == name {
			args = append(args, step.args)
		}
	}
	return args
}

// readDockerfile returns the stages of the Dockerfile.
func readDockerfile(t testing.TB) []stage {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var stages []stage
	joined := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if more, ok := strings.CutSuffix(line, `\`); ok {
			joined += more + " "
			continue
		}
		name, args, _ := strings.Cut(joined+line, " ")
		joined = ""
		args = strings.Join(strings.Fields(args), " ")
		if name == "FROM" {
			image, as, _ := strings.Cut(args, " AS ")
			stages = append(stages, stage{image: image, as: as})
			continue
		}
		if len(stages) == 0 {
			t.Fatalf("%s stands before the first FROM", name)
		}
		last := &stages[len(stages)-1]
		last.steps = append(last.steps, instruction{name, args})
	}
	if len(stages) < 2 {
		t.Fatalf("there are %d stages; want one to build in, and one to run", len(stages))
	}
	return stages
}

// image returns the stage that becomes an image.
func image(t testing.TB, name string) stage {
	t.Helper()
	for _, s := range readDockerfile(t)[1:] {
		if s.as == name {
			return s
		}
	}
	t.Fatalf("no stage is called %q", name)
	return stage{}
}

// program is what is built for an image.
type program struct{ module, dir, pkg string }

// name returns the name of the binary.
func (p program) name() string { return path.Base(path.Join(p.module, p.pkg)) }

// programs are those of the images, by the names of these.
var programs = map[string]program{
	"orders":    {"examples", "/orders/", "./orders"},
	"railtoken": {"cmd/railtoken", "/railtoken/", "."},
}

// builds returns the RUN instruction that builds the programs.
func builds(t testing.TB) (run string) {
	t.Helper()
	for _, run := range readDockerfile(t)[0].all("RUN") {
		if strings.Contains(run, "go build ") {
			return run
		}
	}
	t.Fatal("no go build in the first stage")
	return ""
}

// pinned reports whether an image has a version, or a digest.
func pinned(image string) bool {
	if strings.Contains(image, "@sha256:") {
		return true
	}
	_, tag, ok := strings.Cut(image, ":")
	return ok && regexp.MustCompile(`^v?\d+\.\d+`).MatchString(tag)
}

func TestPinned(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]bool{
		"golang": false, "golang:latest": false, "golang:bookworm": false, "golang:1": false, "golang:1.26-bookworm": true, "redis:7.4.6": true,
		"golang@sha256:0123": true,
	} {
		if got := pinned(image); got != want {
			t.Errorf("%s is pinned: %t; want %t", image, got, want)
		}
	}
}

func TestDockerfileImagesArePinned(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range readDockerfile(t) {
		if s.image != "scratch" && !slices.Contains(names, s.image) && !pinned(s.image) {
			t.Errorf("%q is not pinned to a version", s.image)
		}
		names = append(names, s.as)
	}
}

func TestDockerfileBuildsWithTheVersionOfGoThatTheModulesAskFor(t *testing.T) {
	t.Parallel()
	image := readDockerfile(t)[0].image
	version := regexp.MustCompile(`^golang:(\d+\.\d+)`).FindStringSubmatch(image)
	if version == nil {
		t.Fatalf("the first stage is from %q; want an image of Go", image)
	}
	for _, file := range []string{"go.mod", "go.work", "examples/go.mod", "cmd/railtoken/go.mod", "metrics/prometheus/go.mod"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		asked := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(text))
		if len(asked) != 2 || asked[1] != version[1] {
			t.Errorf("%s asks for Go %q, the image has %s", file, asked, version[1])
		}
	}
}

func TestDockerfileBuildsStaticBinaries(t *testing.T) {
	t.Parallel()
	run := builds(t)
	env := strings.Join(readDockerfile(t)[0].all("ENV"), " ") + " " + run
	if !strings.Contains(env, "CGO_ENABLED=0") {
		t.Error("CGO_ENABLED=0 is not set")
	}
	for _, want := range []string{"-trimpath", "--mount=type=cache,target=/go/pkg/mod", "--mount=type=cache,target=/root/.cache/go-build"} {
		if !strings.Contains(run, want) {
			t.Errorf("the build has no %s", want)
		}
	}
}

func TestDockerfileBuildsProgramsOfThisRepository(t *testing.T) {
	t.Parallel()
	run := builds(t)
	if n := strings.Count(run, "go build "); n != len(programs) {
		t.Errorf("%d programs are built, want %d", n, len(programs))
	}
	for _, p := range programs {
		if want := regexp.MustCompile("go build -C " + p.module + " .* -o " + p.dir + " " + regexp.QuoteMeta(p.pkg) + "( |$)"); !want.MatchString(run) {
			t.Errorf("%q does not build %s", run, p.name())
		}
		for _, line := range golist(t, p, "-f", "{{.Name}} {{.ImportPath}}") {
			if !strings.HasPrefix(line, "main ") {
				t.Errorf("%s is no program", line)
			}
		}
	}
}

func TestDockerfileRunsWhatItHasBuilt(t *testing.T) {
	t.Parallel()
	for of, p := range programs {
		s := image(t, of)
		check := strings.Join(s.all("HEALTHCHECK"), " ")
		_, command, _ := strings.Cut(check, "CMD ")
		for name, args := range map[string]string{"ENTRYPOINT": strings.Join(s.all("ENTRYPOINT"), " "), "HEALTHCHECK": command} {
			var words []string // the form without a shell: there is none, and it would keep signals from the program
			if err := json.Unmarshal([]byte(args), &words); err != nil || len(words) == 0 || words[0] != "/"+p.name() {
				t.Errorf("%s: %s is %q; want /%s in the exec form", of, name, args, p.name())
			}
		}
		copied := false
		for _, args := range s.all("COPY") {
			from := regexp.MustCompile(`--from=(\S+)`).FindStringSubmatch(args)
			if len(from) != 2 || from[1] != readDockerfile(t)[0].as {
				t.Errorf("%s: COPY %s is not from the first stage", of, args)
			}
			copied = copied || strings.HasSuffix(args, " "+p.dir+" /")
		}
		if !copied {
			t.Errorf("%s: what is built is not copied", of)
		}
	}
}

func TestDockerfileDoesNotRunAsRoot(t *testing.T) {
	t.Parallel()
	for name := range programs {
		users := image(t, name).all("USER")
		if len(users) == 0 {
			t.Fatalf("%s: no user is set: it runs as root", name)
		}
		user, group, _ := strings.Cut(users[len(users)-1], ":")
		for _, id := range []string{user, group} {
			// By number: an image from scratch has no names, and Kubernetes checks only numbers.
			if n, err := strconv.Atoi(id); err != nil || n <= 0 {
				t.Errorf("%s: the user is %q; want two numbers above 0", name, users)
			}
		}
	}
}

func TestDatabaseOfTheComposeFileCanBeWritten(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	dir := path.Dir(c.Services[c.flagged("-serve")[0]].value("-db"))
	if !strings.Contains(builds(t), "mkdir -p /orders"+dir+" ") {
		t.Errorf("the image has no %s, so a new volume there belongs to root", dir)
	}
	s := image(t, "orders")
	user := strings.Join(s.all("USER"), " ")
	if copies := strings.Join(s.all("COPY"), "\n"); !strings.Contains(copies, "--chown="+user+" /orders/ /") {
		t.Errorf("%s does not belong to %s", dir, user)
	}
}

func TestDockerignoreLetsInWhatIsBuilt(t *testing.T) {
	t.Parallel()
	allowed := dockerignore(t)
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	format := `{{if .Module}}{{if or .Module.Main .Module.Replace}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`
	modules := []string{".", "metrics/prometheus"}
	var files []string
	for _, p := range programs {
		files = append(files, golist(t, p, "-deps", "-f", format)...)
		modules = append(modules, p.module)
	}
	for _, module := range modules {
		files = append(files, filepath.Join(abs, module, "go.mod"), filepath.Join(abs, module, "go.sum"))
	}
	for _, file := range files {
		rel, err := filepath.Rel(abs, file)
		if err != nil {
			t.Fatal(err)
		}
		if !allowed(filepath.ToSlash(rel)) {
			t.Errorf("%s is needed and left out", rel)
		}
	}
	if len(files) < 50 {
		t.Errorf("only %d files are needed: were they found?", len(files))
	}
	for _, name := range []string{".git/config", ".bin/tool", "README.md", "docker/compose.yaml", "locking/single_test.go"} {
		if allowed(name) {
			t.Errorf("%s is let in", name)
		}
	}
}

// dockerignore returns whether a file is let in: everything is left out first, and some paths and what is below them let in.
func dockerignore(t testing.TB) func(string) bool {
	t.Helper()
	text, err := os.ReadFile("Dockerfile.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	var in, out []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#") || line == "*":
		case strings.HasPrefix(line, "!"):
			in = append(in, line[1:])
		case strings.HasPrefix(line, "**/*"):
			out = append(out, strings.TrimPrefix(line, "**/*"))
		default:
			t.Fatalf("this test does not know what %q means", line)
		}
	}
	return func(file string) bool {
		return slices.ContainsFunc(in, func(p string) bool { return file == p || strings.HasPrefix(file, p+"/") }) &&
			!slices.ContainsFunc(out, func(suffix string) bool { return strings.HasSuffix(file, suffix) })
	}
}

// golist runs go list for a program and returns its lines.
func golist(t testing.TB, p program, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"list"}, args...), p.pkg)...)
	cmd.Dir = filepath.Join(root, p.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool { return line == "" })
}
