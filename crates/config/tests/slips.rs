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

#[test]
fn patterns_that_hardly_match_are_named() {
    let found = said("[routes]\n\"*@f.example\" = \"192.0.2.1\"\n");
    assert!(found.contains("stands for itself: write \"f.example\""), "{found}");
    assert_eq!(said("[routes]\n\"intranet\" = \"192.0.2.1\"\n"), "");
    let found = said("[[rules]]\nrecipient = \"joe\"\ndo = \"reject\"\n");
    assert!(found.contains("did you mean \"joe@\""), "{found}");
    let found = said("[[rules]]\nattachment = \".exe\"\ndo = \"reject\"\n");
    assert!(found.contains("write \"*.exe\""), "{found}");
    let found = said("[[rules]]\nauth = \"dmarc=failed\"\ndo = \"reject\"\n");
    assert!(found.contains("no result \"failed\": pass, fail,"), "{found}");
}
