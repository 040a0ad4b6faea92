package main

var clouds = []mutant{
	{
		File: "adapters/awssqs/internal/leansqs/attempt.go", Text: "\t\tout = k.fresh()\n", With: "",
		Package: "adapters/awssqs/internal/leansqs", Test: "FuzzAnswers",
		Why: "what the scanner had read of an odd answer stays under what the SDK reads of it",
	},
	{
		File: "adapters/awssqs/internal/leansqs/scan.go", Text: "bad: !utf8.ValidString(text)", With: "bad: !utf8.ValidString(\"\")",
		Package: "adapters/awssqs/internal/leansqs", Test: "FuzzAnswers",
		Why: "a body that is not UTF-8 is another one than the SDK gives",
	},
	{
		File: "adapters/awssqs/internal/leansqs/scan.go", Text: "s.bad = s.bad || len(ids) == n // an", With: "_ = n // an",
		Package: "adapters/awssqs/internal/leansqs", Test: "FuzzAnswers",
		Why: "an entry without its id is taken for one that was applied",
	},
}
