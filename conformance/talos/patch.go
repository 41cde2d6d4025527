package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
)

// PatchCase is one application of patches, with the patcher's answer: a result, or an error.
// An answer of ichor's may say Skip instead, with the reason why it does not offer this.
type PatchCase struct {
	Name     string   `json:"name"`
	Talos    string   `json:"talos,omitempty"` // the release that answered
	Config   string   `json:"config,omitempty"`
	Patches  []string `json:"patches,omitempty"`
	Result   string   `json:"result,omitempty"`
	Error    string   `json:"error,omitempty"`
	Skip     string   `json:"skip,omitempty"`
	Mischief string   `json:"mischief,omitempty"` // the kind of trouble put in on purpose

	// Verdicts say what validation objects to in the result, by mode; empty text for nothing.
	Verdicts map[string]string `json:"verdicts,omitempty"`
}

// decide fills in the real patcher's answer. Upstream code panics on some inputs: that is an error too.
func (c *PatchCase) decide() {
	defer func() {
		if p := recover(); p != nil {
			c.Error = fmt.Sprintf("panic: %v", p)
		}
	}()

	c.Talos = gendata.VersionTag

	result, err := applyPatches([]byte(c.Config), c.Patches)
	if err != nil {
		c.Error = err.Error()

		return
	}

	c.Result = result
	c.Verdicts = map[string]string{}

	for _, m := range []mode{"metal", "cloud"} {
		_, err := validateText(m, []byte(result), asNode()...)
		c.Verdicts[m.String()] = message(err)
	}
}

func cmdPatch(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	texts := make([]string, 0, len(args))

	for _, path := range args {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		texts = append(texts, string(text))
	}

	answer := PatchCase{Name: args[0], Config: texts[0], Patches: texts[1:]}
	answer.decide()

	return verdict(answer.Error == "", answer)
}

// fixture names a patch test of upstream: a config, its patches, and the expected result or error.
// The list restates which files upstream's tests put together; the files are read from the module.
type fixture struct {
	folder, config string
	patches        []string
	expected       string // a file, or
	err            string // a part of the error text
	reformat       bool   // the expected file is not in the encoder's own format
}

var patcherFixtures = []fixture{
	{
		folder: "apply", config: "config.yaml", expected: "expected.yaml",
		patches: []string{"strategic1.yaml", "jsonpatch1.yaml", "jsonpatch2.yaml", "strategic2.yaml", "strategic3.yaml"},
	},
	{folder: "apply", config: "config.yaml", patches: []string{"strategic4.yaml"}, expected: "expected_manifests.yaml"},
	{folder: "multidoc", config: "config.yaml", patches: []string{"strategic1.yaml", "strategic2.yaml"}, expected: "expected.yaml"},
	{
		folder: "multidoc", config: "config.yaml", patches: []string{"jsonpatch.yaml", "strategic1.yaml"},
		err: "JSON6902 patches are not supported for multi-document machine configuration",
	},
	{folder: "auditpolicy", config: "config.yaml", patches: []string{"patch1.yaml"}, expected: "expected.yaml"},
	{folder: "patchdelete", config: "config.yaml", patches: []string{"strategic1.yaml"}, expected: "expected.yaml"},
	{
		folder: "patchdelete", config: "controlplane_orig.yaml", expected: "controlplane_expected.yaml",
		patches: []string{"strategic2.yaml", "strategic3.yaml", "strategic4.yaml"},
	},
	{folder: "patchdeletemissing", config: "config.yaml", patches: []string{"strategic1.yaml"}, err: "machine.network.hostname"},
	{folder: "patchlink", config: "base.yaml", patches: []string{"patch.yaml"}, expected: "expected.yaml"},
	{folder: "patchmixed", config: "base.yaml", patches: []string{"patch.yaml"}, expected: "expected.yaml"},
}

// FixtureReport says how the real patcher did on one upstream fixture.
type FixtureReport struct {
	Name string `json:"name"`
	Good bool   `json:"good"`
	Why  string `json:"why,omitempty"`
}

// cmdPatchFixtures runs upstream's patch fixtures, and writes them as cases for others to run.
func cmdPatchFixtures(args []string) error {
	if err := needArgs(args, 1); err != nil {
		return err
	}

	var (
		cases   []PatchCase
		reports []FixtureReport
		good    = true
	)

	for _, f := range fixturesIn(args[0]) {
		patchCase, report := f.run()
		cases = append(cases, patchCase)
		reports = append(reports, report)
		good = good && report.Good
	}

	if len(reports) == 0 {
		return fmt.Errorf("no patch fixtures in %s", args[0])
	}

	if len(args) > 1 {
		if err := writeLines(args[1], cases); err != nil {
			return err
		}
	}

	return verdict(good, reports)
}

// fixturesIn returns the fixtures of this release with whole paths; older releases have fewer.
func fixturesIn(module string) []fixture {
	var found []fixture

	for _, f := range patcherFixtures {
		f.folder = filepath.Join(module, "config", "configpatcher", "testdata", f.folder)

		if _, err := os.Stat(filepath.Join(f.folder, f.config)); err == nil {
			found = append(found, f)
		}
	}

	folders, _ := filepath.Glob(filepath.Join(module, "config", "types", "v1alpha1", "testdata", "strategic", "*"))
	sort.Strings(folders)

	for _, folder := range folders {
		found = append(found, fixture{
			folder: folder, config: "left.yaml", patches: []string{"right.yaml"}, expected: "expected.yaml", reformat: true,
		})
	}

	return found
}

func (f fixture) run() (PatchCase, FixtureReport) {
	patchCase := PatchCase{Name: fmt.Sprintf("%s/%s", filepath.Base(f.folder), strings.Join(f.patches, "+"))}
	report := FixtureReport{Name: patchCase.Name}

	config, err := os.ReadFile(filepath.Join(f.folder, f.config))
	if err != nil {
		report.Why = err.Error()

		return patchCase, report
	}

	patchCase.Config = string(config)

	for _, name := range f.patches {
		patch, err := os.ReadFile(filepath.Join(f.folder, name))
		if err != nil {
			report.Why = err.Error()

			return patchCase, report
		}

		patchCase.Patches = append(patchCase.Patches, string(patch))
	}

	patchCase.decide()
	report.Why = f.objection(patchCase)
	report.Good = report.Why == ""

	return patchCase, report
}

func (f fixture) objection(patchCase PatchCase) string {
	if f.err != "" {
		if strings.Contains(patchCase.Error, f.err) {
			return ""
		}

		return fmt.Sprintf("expected an error with %q, got %q", f.err, patchCase.Error)
	}

	expected, err := os.ReadFile(filepath.Join(f.folder, f.expected))
	if err != nil {
		return err.Error()
	}

	if patchCase.Error != "" {
		return patchCase.Error
	}

	if f.reformat {
		if expected, err = reencode(expected); err != nil {
			return err.Error()
		}
	}

	if patchCase.Result != string(expected) {
		return firstDifference(string(expected), patchCase.Result)
	}

	return ""
}

// reencode reads a config and writes it in the encoder's own format.
func reencode(text []byte) ([]byte, error) {
	provider, err := configloader.NewFromBytes(text)
	if err != nil {
		return nil, err
	}

	return provider.EncodeBytes(withoutComments)
}

// cmdPatchCompare compares two patchers. They agree on a case when both refuse it, or when both give the
// same bytes; the wording of an error is not compared.
func cmdPatchCompare(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	real, err := readLines[PatchCase](args[0])
	if err != nil {
		return err
	}

	answers, err := readLines[PatchCase](args[1])
	if err != nil {
		return err
	}

	ours := map[string]PatchCase{}
	for _, c := range answers {
		ours[c.Name] = c
	}

	comparison := Comparison{Cases: len(real)}

	for _, want := range real {
		got, answered := ours[want.Name]

		switch {
		case !answered:
			comparison.differ(want.Name, "no answer")
		case got.Skip != "":
			comparison.skip(want.Name, got.Skip)
		case (want.Error == "") == (got.Error == "") && want.Result == got.Result:
			comparison.Agree++
		case want.keptDifference(got) != "":
			comparison.keep(want.keptDifference(got))
		case (want.Error == "") != (got.Error == ""):
			comparison.differ(want.Name, fmt.Sprintf("real error %q, our error %q", want.Error, got.Error))
		default:
			comparison.differ(want.Name, firstDifference(want.Result, got.Result))
		}
	}

	return comparison.verdict()
}

// keptDifference says which of the differences that are kept this is, if it is one.
func (c PatchCase) keptDifference(got PatchCase) string {
	switch {
	case c.Error == "" && got.Error == "" && sameToTalos(c.Result, got.Result):
		return keptForm
	case c.Error == "" && got.Error != "" && unusable(c.Result):
		return keptUnusable
	case c.Error != "" && got.Error == "" && slices.ContainsFunc(c.Patches, blank):
		without := PatchCase{Config: c.Config, Patches: slices.DeleteFunc(slices.Clone(c.Patches), blank)}
		without.decide()

		if without.Error == "" && sameToTalos(without.Result, got.Result) {
			return keptEmpty
		}
	}

	return ""
}

// blank holds for patches without content: nothing, comments, or documents with nothing in them.
func blank(patch string) bool {
	for line := range strings.Lines(patch) {
		if text := strings.TrimSpace(line); text != "" && text != "---" && !strings.HasPrefix(text, "#") {
			return false
		}
	}

	return true
}

// sameToTalos holds when Talos reads both texts, and writes the same bytes for what it has read.
func sameToTalos(one, other string) bool {
	left, err := reencode([]byte(one))
	if err != nil {
		return false
	}

	right, err := reencode([]byte(other))

	return err == nil && string(left) == string(right)
}

// unusable holds when Talos cannot read a text that it wrote itself.
func unusable(text string) bool {
	_, err := reencode([]byte(text))

	return err != nil
}

// cmdValidateCompare compares two validations of the cases' results: both accept, or both refuse.
func cmdValidateCompare(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	real, err := readLines[PatchCase](args[0])
	if err != nil {
		return err
	}

	answers, err := readLines[PatchCase](args[1])
	if err != nil {
		return err
	}

	ours := map[string]PatchCase{}
	for _, c := range answers {
		ours[c.Name] = c
	}

	comparison := Comparison{}

	for _, want := range real {
		for mode, wanted := range want.Verdicts {
			comparison.Cases++

			got, answered := ours[want.Name].Verdicts[mode]

			switch name := want.Name + "/" + mode; {
			case !answered && ours[want.Name].Skip != "":
				comparison.skip(name, ours[want.Name].Skip)
			case !answered:
				comparison.differ(name, "no answer")
			case (wanted == "") != (got == ""):
				comparison.differ(name, fmt.Sprintf("real objection %q, our objection %q", wanted, got))
			default:
				comparison.Agree++
			}
		}
	}

	return comparison.verdict()
}

// cmdSame compares two files byte for byte and shows the first difference.
func cmdSame(args []string) error {
	if err := needArgs(args, 2); err != nil {
		return err
	}

	expected, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}

	actual, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}

	why := firstDifference(string(expected), string(actual))

	return verdict(why == "", map[string]any{"same": why == "", "why": why})
}

// firstDifference describes where two texts part, or is empty. Lines that hold key material are not shown.
func firstDifference(expected, actual string) string {
	if expected == actual {
		return ""
	}

	left, right := strings.Split(expected, "\n"), strings.Split(actual, "\n")

	for n := 0; n < len(left) && n < len(right); n++ {
		if left[n] != right[n] {
			return fmt.Sprintf("line %d: expected %q, got %q", n+1, shorten(left[n]), shorten(right[n]))
		}
	}

	return fmt.Sprintf("expected %d lines, got %d", len(left), len(right))
}

func shorten(line string) string {
	const limit = 120

	if len(line) > limit {
		return line[:limit/2] + "..."
	}

	return line
}
