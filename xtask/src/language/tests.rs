//! Texts that are good, and texts that are not.

use super::*;

fn markdown(text: &str) -> Findings {
    let mut all = Text::default();
    all.markdown("a.md", text);
    all.findings()
}

fn source(name: &str, text: &str) -> Findings {
    let mut all = Text::default();
    all.source(name, text);
    all.findings()
}

#[test]
fn a_line_of_markdown_holds_one_sentence() {
    assert_eq!(markdown("One is here.\nTwo is there:\nx\n\n| A. B. | C. D. |\n"), Findings::new());
    assert_eq!(markdown("# A. B\n```\nA. B. C\n```\n`A. B`, e.g. `C`.\n"), Findings::new());
    let found = markdown("x\n\n* One is here. `two x` is there.\n");
    assert_eq!(found, ["a.md:3: a second sentence on the line: `two x` is there."]);
    let found = markdown("One\nis here. Two is there.\n");
    assert_eq!(
        found,
        [
            "a.md:2: a second sentence on the line: Two is there.",
            "a.md:1: the sentence continues on the next line: One",
        ]
    );
}

#[test]
fn phrases_are_found_in_markdown_even_across_lines() {
    let found = markdown("| nobody |\n\nIt goes for\ngood, `anew`.\n");
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[0], "a.md:1: \"nobody\"; better: no node, no client, not ... by any node");
    assert!(found[1].starts_with("a.md:3: \"for good\""));
}

#[test]
fn phrases_are_found_in_comments_and_literals() {
    let text = "/// Starts anew.\nfn f() {\n    g(\"a\\\n        nobody\"); // for good reason\n}\n\
        // Somebody\n/*! x\n\nso many\n*/\n";
    let found = source("scheduler/src/a.rs", text);
    let places: Vec<&str> = found.iter().map(|it| it.split(';').next().unwrap_or("")).collect();
    assert_eq!(
        places,
        [
            "scheduler/src/a.rs:1: \"anew\"",
            "scheduler/src/a.rs:4: \"nobody\"",
            "scheduler/src/a.rs:6: \"somebody\"",
            "scheduler/src/a.rs:9: \"so many\"",
        ]
    );
}

#[test]
fn names_of_values_in_literals_are_free() {
    assert_eq!(source("a.rs", "f(\"{who} is {anew:?}\");\n"), Findings::new());
    assert_eq!(source("a.rs", "f(\"{a} anew {b}\\nnobody\");\n").len(), 2);
}

#[test]
fn literals_of_tests_are_free_and_comments_are_not() {
    let literal = "f(\"nobody\");\n";
    let module = format!("f();\n#[cfg(test)]\nmod tests {{\n{literal}}}\n");
    assert_eq!(source("kvs/src/a.rs", literal).len(), 1);
    for name in ["kvs/tests/a.rs", "kvs/src/tests.rs", "kvs/src/a_tests.rs", "tests/src/lib.rs"] {
        assert_eq!(source(name, literal), Findings::new(), "{name}");
        assert_eq!(source(name, "// nobody\n").len(), 1, "{name}");
    }
    assert_eq!(source("kvs/src/a.rs", &module), Findings::new());
    assert_eq!(source("kvs/src/a.rs", &module.replace("f(", "// nobody\nf(")).len(), 2);
}

#[test]
fn lengths_of_markdown_and_of_comments_are_apart() {
    let long = format!("Word{}.", " word".repeat(39));
    assert_eq!(markdown(&long).len(), 2);
    assert_eq!(source("a.rs", &format!("// {long}\n")).len(), 2);
    assert_eq!(source("a.rs", &format!("f(\"{long}\");\n")), Findings::new());
    assert_eq!(source("a.proto", &format!("message A {{}} // {long}\n")).len(), 2);
}
