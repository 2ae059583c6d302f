//! Texts that are good, and texts that are not.

use super::*;

fn markdown(text: &str) -> Findings {
    let mut all = Review::default();
    all.markdown("a.md", text);
    all.findings()
}

fn source(name: &str, text: &str) -> Findings {
    let mut all = Review::default();
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
fn names_of_functions_are_read() {
    let text = "// fn x\n#[test]\nfn nobody_waits() {\n    pub(crate) async fn g_of_old(a: fn(u8)) {}\n\
        // a fn whose_is()\nfn whosever() {}\nlet f: fn (u8);\n";
    let found = source("a.rs", text);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("a.rs:3: \"nobody\""));
    assert!(found[1].starts_with("a.rs:4: \"of old\""));
}

#[test]
fn names_of_values_in_literals_are_free() {
    assert_eq!(source("a.rs", "f(\"{who} is {anew:?}\");\n"), Findings::new());
    assert_eq!(source("a.rs", "f(\"{a} anew {b}\\nnobody\");\n").len(), 2);
}

#[test]
fn braces_without_the_name_of_a_value_hide_nothing() {
    for literal in ["{ nobody", "{nobody", "{\\\"nobody\\\": 1}", "{ nobody }", "{{nobody {x}"] {
        assert_eq!(source("a.rs", &format!("f(\"{literal}\");\n")).len(), 1, "{literal}");
    }
}

#[test]
fn literals_of_tests_count_and_those_of_this_check_do_not() {
    let literal = "f(\"nobody\");\n";
    let module = format!("#[cfg(test)]\n#[expect(x)]\nmod tests {{\n{literal}}}\n{literal}");
    for name in ["kvs/src/a.rs", "kvs/tests/a.rs", "kvs/src/tests.rs", "xtask/src/links.rs"] {
        assert_eq!(source(name, literal).len(), 1, "{name}");
        assert_eq!(source(name, &module).len(), 2, "{name}");
    }
    assert_eq!(source("xtask/src/language/a.rs", &module), Findings::new());
    assert_eq!(source("xtask/src/language/a.rs", "// nobody\n").len(), 1);
}

#[test]
fn phrases_are_found_in_manifests_and_scripts() {
    let text = "# Nobody waits.\na = \"anew\" # so many\n";
    for name in ["kvs/Cargo.toml", "scripts/test", ".ci/run"] {
        assert_eq!(source(name, text).len(), 3, "{name}");
    }
}

#[test]
fn lengths_of_markdown_and_of_comments_are_apart() {
    let long = format!("Word{}.", " word".repeat(39));
    assert_eq!(markdown(&long).len(), 2);
    assert_eq!(source("a.rs", &format!("// {long}\n")).len(), 2);
    assert_eq!(source("a.rs", &format!("f(\"{long}\");\n")), Findings::new());
    assert_eq!(source("a.proto", &format!("message A {{}} // {long}\n")).len(), 2);
}
