//! What people who come from Postfix and sendmail write, and what `check` says to it.

use std::path::Path;

use stentor_config::check_text;

/// All that is said about a configuration, a line each.
fn said(text: &str) -> String {
    let found = match check_text(Path::new("stentor.toml"), text) {
        Ok(config) => config.warnings,
        Err(found) => found,
    };
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn rules_on_content_take_no_tables() {
    for condition in [
        "raw_header = \"table:checks\"",
        "header = \"Subject: table:checks\"",
        "subject = \"table:checks\"",
        "body = [\"x\", \"table:checks\"]",
        "charset = \"table:checks\"",
        "attachment = \"table:checks\"",
        "not = { subject = \"table:checks\" }",
    ] {
        let found = said(&format!("[[rules]]\n{condition}\ndo = \"reject\"\n"));
        assert!(found.contains("rules on content take no tables: write a rule for each line"), "{condition}: {found}");
    }
    for condition in ["header = \"table: x\"", "subject = \"table: four legs\"", "body = \"/table:x/\""] {
        assert_eq!(said(&format!("[[rules]]\n{condition}\ndo = \"reject\"\n")), "", "{condition}");
    }
}

#[test]
fn a_misspelt_source_of_an_action_is_said_once() {
    let found = said("[[rules]]\nsender = \"table:nosuch\"\n");
    assert!(found.contains("there is no table \"nosuch\"") && found.lines().count() == 1, "{found}");
    let found = said("[[rules]]\npolicy_service = \"nosuch\"\n");
    assert!(!found.contains("`do` is missing") && found.lines().count() == 1, "{found}");
    let found = said("[[rules]]\nsender = \"a@b.example\"\n");
    assert!(found.contains("`do` is missing"), "{found}");
}
