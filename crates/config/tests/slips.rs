//! Mistakes of administrators who come from Postfix and sendmail, and the output of `check`.

use std::path::Path;

use stentor_config::check_text;
use stentor_rules::{Dialect, ValueUses};

/// All findings in a configuration, one a line.
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
        assert!(
            found.contains("rules on content cannot use tables: write a rule for each line"),
            "{condition}: {found}"
        );
    }
    for condition in ["header = \"table: x\"", "subject = \"table: four legs\"", "body = \"/table:x/\""] {
        assert_eq!(said(&format!("[[rules]]\n{condition}\ndo = \"reject\"\n")), "", "{condition}");
    }
}

#[test]
fn keys_of_copies_and_suppression_that_contradict_each_other_are_said() {
    let sender =
        |keys: &str| said(&format!("[http]\nlink_base = \"https://l.example\"\n[senders.\"a.example\"]\n{keys}\n"));
    assert_eq!(sender("transactional = true"), "");
    let unsigned = sender("one_click = true");
    assert!(unsigned.contains(":3:") && unsigned.contains("without a DKIM signature of a.example"), "{unsigned}");
    let found = sender("transactional = true\none_click = true");
    assert!(found.contains("`transactional` and `one_click`"), "{found}");
    let found = sender("copy_fields = [\"To: {mailbox}\"]");
    assert!(found.contains("`{list}` and `{mailbox}` in `copy_fields` are for [lists.NAME]"), "{found}");
    let list = "[lists.news]\naddress = \"news@l.example\"\nsubscribers = \"news\"\ntransactional = true\n";
    assert!(said(list).contains("transactional"), "{}", said(list));
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
    assert!(found.contains("is matched literally: write \"f.example\""), "{found}");
    assert_eq!(said("[routes]\n\"intranet\" = \"192.0.2.1\"\n"), "");
    let found = said("[[rules]]\nrecipient = \"joe\"\ndo = \"reject\"\n");
    assert!(found.contains("did you mean \"joe@\""), "{found}");
    let found = said("[[rules]]\nattachment = \".exe\"\ndo = \"reject\"\n");
    assert!(found.contains("write \"*.exe\""), "{found}");
    let found = said("[[rules]]\nbody = \"/viagra/i\"\nheader = \"X-Ok: *\"\ndo = \"reject\"\n");
    assert!(found.contains("write \"/viagra/\"") && found.contains("write \"X-Ok: /^/\""), "{found}");
    let prepends = |more: &str| said(&format!("[[rules]]\nbody = \"x\"\ndo = [\"prepend subject: [spam]\"{more}]\n"));
    assert!(prepends("").contains("a message must have only one Subject"), "{}", prepends(""));
    assert_eq!(prepends(", \"remove_header Subject\""), "");
    let found = said("[[rules]]\nauth = \"dmarc=failed\"\ndo = \"reject\"\n");
    assert!(found.contains("no result \"failed\": use one of pass, fail,"), "{found}");
}

#[test]
fn transports_of_other_servers_lead_to_what_is_here() {
    for (hop, instead) in [("discard:", "do = \"discard\""), ("slow:", "[sites]"), ("procmail:", "pipe:NAME")] {
        let found = said(&format!("[routes]\n\"a.example\" = \"{hop}\"\n"));
        assert!(found.contains(instead), "{hop}: {found}");
    }
}

#[test]
fn a_policy_service_needs_a_name_that_no_condition_asks_for() {
    let service = "[policy_services.grey]\naddress = \"unix:/run/grey\"\n[[rules]]\npolicy_service = \"grey\"\n";
    let rules = |text: &str| check_text(Path::new("stentor.toml"), text).expect("it is sound").rules;
    let by_service = rules(service);
    assert!(by_service.needs_name() && !by_service.asks_name());
    let by_name = rules("[[rules]]\nnot = { client_name = \"unknown\" }\ndo = \"hold\"\n");
    assert!(by_name.needs_name() && by_name.asks_name());
}

#[test]
fn tables_of_routes_have_next_hops_in_our_words_too() {
    const ROUTES: ValueUses = ValueUses { rules: false, routes: true, is_used: true };
    let rules = check_text(Path::new("stentor.toml"), "[hops]\ngate = [\"192.0.2.1\"]\n").expect("it is sound").rules;
    for (dialect, value) in [
        (Dialect::Mailertable, "local:"),
        (Dialect::Transport, "hop:gate"),
        (Dialect::Transport, "pipe:archive"),
        (Dialect::Relayhost, "hop:gate"),
    ] {
        assert_eq!(rules.unusable(dialect, ROUTES, "a.example", value), None, "{value}");
    }
    for (dialect, value, why) in [
        (Dialect::Transport, "hop:gaet", "there is no hop"),
        (Dialect::Transport, "slow:", "[sites]"),
        (Dialect::Mailertable, "procmail:/etc/procmailrcs/a", "pipe:NAME"),
        (Dialect::Mailertable, "discard:", "do = \"discard\""),
    ] {
        let found = rules.unusable(dialect, ROUTES, "a.example", value).unwrap_or_default();
        assert!(found.contains(why), "{value}: {found}");
    }
}

#[test]
fn an_alias_of_a_list_that_rules_name_is_named() {
    let config = "hostname = \"mx.f.example\"\n[domains]\nlocal = [\"f.example\"]\npostmaster = \"ann@g.example\"\n\
        [lists.news]\naddress = \"news@f.example\"\nowner = \"ann@g.example\"\nsubscribers = \"/proc/version\"\n\
        [aliases]\n\"all@f.example\" = \"news@f.example\"\n\"ann@f.example\" = \"ann@g.example\"\n";
    let rule = "[[rules]]\nlist = \"news\"\nclient = \"192.0.2.1\"\ndo = \"reject\"\n";
    let found = said(&format!("{config}{rule}"));
    assert!(found.contains("posts to list `news` by alias all@f.example bypass the rule at"), "{found}");
    assert!(found.lines().count() == 1 && said(config).is_empty(), "{found} {}", said(config));
}

#[test]
fn links_below_a_path_are_doubted_where_pages_are_ours() {
    let config = |tls: &str, base: &str| {
        said(&format!(
            "[http]\nlisten = [\"127.0.0.1:8443\"]\n{tls}[quarantine]\ndigest_at = \"07:00\"\nlink_base = \"{base}\"\n"
        ))
    };
    assert!(config("tls = true\n", "https://q.example/base").contains("`link_base` has a path"));
    assert!(!config("tls = true\n", "https://q.example/").contains("`link_base` has a path"));
    assert!(!config("", "https://q.example/base").contains("`link_base` has a path"));
}
