package main

var security = []mutant{
	{
		File: "cmd/onceq/internal/settings/file.go",
		Text: "	if _, err := os.Lstat(unasked); err == nil {", With: "	if false {",
		Package: "cmd/onceq/internal/settings", Test: "TestPlaces",
		Why: "a file of the folder must not be passed over: the acts of who relies on it would go elsewhere",
	},
	{
		File: "cmd/onceq/internal/settings/file.go",
		Text: "	own := ownPath(env, home)\n", With: "	own := unasked\n	if true {\n		return read(own, env)\n	}\n",
		Package: "cmd/onceq/internal/cli", Test: "TestFileOfTheFolder",
		Why: "a file of the folder that nobody asked for sends the operator's secrets to who wrote it",
	},
	{
		File: "cmd/onceq/internal/cli/complete.go",
		Text: "err != nil || conf.here {", With: "err != nil || conf.here && false {",
		Package: "cmd/onceq/internal/cli", Test: "TestFileOfTheFolder",
		Why: "a key pressed in a stranger's folder must ask no store that its file names",
	},
	{
		File: "cmd/onceq/internal/settings/file.go",
		Text: "				r.hide(n, \"letter key\")\n", With: "",
		Package: "cmd/onceq/internal/settings", Test: "TestSecretsInTheFile",
		Why: "a letter key in a file that others may read is no secret",
	},
	{
		File: "cmd/onceq/internal/settings/file.go",
		Text: "	return strings.CutPrefix(aliased(n).Value, \"env:\")", With: "	return strings.CutPrefix(n.Value, \"env:\")",
		Package: "cmd/onceq/internal/settings", Test: "TestSecretsInTheFile",
		Why: "the variable that a list's alias stands for is that of its anchor",
	},
	{
		File: "cmd/onceq/internal/settings/writers.go",
		Text: "mode.Perm()&0o020 != 0 && !own", With: "mode.Perm()&0o020 != 0 && false",
		Package: "cmd/onceq/internal/settings", Test: "TestWriters",
		Why: "whoever is of the file's group could say where acts go",
	},
	{
		File: "cmd/onceq/internal/settings/writers.go",
		Text: "	return err == nil && g.Name == u.Username", With: "	return err == nil && g != nil",
		Package: "cmd/onceq/internal/settings", Test: "TestWriters",
		Why: "a user's first group may be everybody's",
	},
	{
		File: "cmd/onceq/internal/cli/commands.go",
		Text: "		quoted = append([]string{\"--\"}, quoted...)\n", With: "",
		Package: "cmd/onceq/internal/cli", Test: "TestSuggestions",
		Why: "a message's key such as --yes must be no flag when a suggestion is pasted",
	},
	{
		File: "cmd/onceq/internal/settings/file.go", Text: "r.err == nil && f.Default != \"\" && f.Profiles", With: "false && f.Profiles",
		Package: "cmd/onceq/internal/settings", Test: "FuzzParse",
		Why: "a default that is no profile is taken",
	},
	{
		File: "dlq/planfile.go", Text: "(l.Record.Key != l.Key || l.Record.Scope == \"\")", With: "l.Record.Key != l.Key",
		Package: "dlq", Test: "FuzzPlanFile",
		Why: "a letter loses its record on the way through a file, so nobody asks the store for it",
	},
	{
		File: "internal/tablequeue/row.go", Text: "\tmeta.BodyEncoding = \"\"\n", With: "",
		Package: "internal/tablequeue", Test: "FuzzRow",
		Why: "a body that was decoded already is decoded once more behind the next send",
	},
	{
		File: "adapters/dynamooutbox/record.go", Text: "m.Attributes[broker.MetaAttribute] = s.Value", With: "m.Attributes[broker.MetaAttribute] = \"\"",
		Package: "adapters/dynamooutbox", Test: "FuzzMessage",
		Why: "metadata that cannot be read is lost, and nobody can mend the item",
	},
	{
		File: "control/rule.go", Text: "strings.EqualFold(k, name)", With: "k == name && strings.ToLower(k) == k",
		Package: "internal/controlstore", Test: "FuzzRules",
		Why: "a rule means something else after somebody has changed another one",
	},
	{
		File: "internal/controlstore/schedules.go", Text: "if err == nil && w.Form != form {", With: "if err == nil && w.Form < 0 {",
		Package: "internal/controlstore", Test: "FuzzSchedules",
		Why: "a list of a later form is guessed, and written over",
	},
	{
		File: "adapters/webonceq/words.go", Text: "whole(f(\"slots\"), 1, 100_000)", With: "whole(f(\"slots\"), 0, 100_000)",
		Package: "adapters/webonceq", Test: "FuzzForms",
		Why: "the form of a limit pauses the queue",
	},
	{
		File: "adapters/pgbroker/schema.go", Text: "now = `(SELECT pg_catalog.clock_timestamp())`", With: "now = `(SELECT clock_timestamp())`",
		Package: "adapters/pgbroker", Test: "TestHostilePath", Server: true,
		Why: "who may create a function in a schema of the search_path takes part in each receive",
	},
}
