//! Addresses whose local part needs quotes, such as `a..b@` of some carriers, in tables: a key hits in either spelling,
//! whichever of the two a client sends.

use stentor_harness::{Server, TestLab};

use crate::kit::{bare, builder, post_with};
use crate::virtual_users::with;

/// How people write a local part, how it is in a session, and the name of the target that it gets here.
const SPELLINGS: [(&str, &str, &str); 4] =
    [("a..b", "\"a..b\"", "ab"), ("c.", "\"c.\"", "c"), (".d", "\".d\"", "d"), ("e..f", "\"e..f\"", "ef")];

const PLAIN: &str = "me@sender.example";

/// The lines of a table file, every other key without quotes. `{}` in the value is the target.
fn lines(behind: &str, value: &str) -> String {
    let line = |(n, (bare, quoted, target)): (usize, &(&str, &str, &str))| {
        let local = if n % 2 == 0 { bare } else { quoted };
        format!("{local}{behind}{}\n", value.replace("{}", target))
    };
    SPELLINGS.iter().enumerate().map(line).collect()
}

fn explained(server: &Server, from: &str, to: &str) -> String {
    let output = server.operator(&["explain", "--from", from, "--to", to, "--client", "127.0.0.1"]);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn keys_of_table_files_hit_in_both_spellings() {
    let files = [
        ("virtual", lines("@shop.example ", "v{}@one.example")),
        ("names", lines(": ", "n{}@one.example")),
        ("valid", lines("@relay.example ", "ok")),
        ("access", lines("@bad.example ", "REJECT table access")),
        ("own", lines("@spam.example ", "reject 550 5.7.1 Own table")),
        ("transport", lines("@two.example ", "smtp:[gate-{}.example]")),
        ("canonical", lines("@old.example ", "new{}@two.example")),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let server = with(
        bare()
            .set("domains.local", "[\"home.test\"]")
            .set("domains.relay", "[\"relay.example\"]")
            .set("domains.virtual", "[\"shop.example\"]"),
        &files,
        "[tables.users]\nsource = \"hash:{}/virtual\"\nas = \"virtual\"\n\
         [tables.names]\nsource = \"aliases:{}/names\"\nas = \"aliases\"\n\
         [tables.valid]\nsource = \"hash:{}/valid\"\n\
         [tables.access]\nsource = \"hash:{}/access\"\nas = \"access\"\n\
         [tables.own]\nsource = \"hash:{}/own\"\n\
         [tables.ways]\nsource = \"hash:{}/transport\"\nas = \"transport\"\n\
         [tables.canonical]\nsource = \"hash:{}/canonical\"\nas = \"canonical\"\n\
         [addresses]\nvirtual = [\"users\"]\naliases = [\"names\"]\nrecipient_canonical = [\"canonical\"]\n\
         [routing]\ntables = [\"ways\"]\n\
         [[rules]]\nsender = \"table:access\"\n\
         [[rules]]\nsender = \"table:own\"\n\
         [[rules]]\nrecipient = \"relay.example\"\nnot = { recipient = \"table:valid\" }\n\
         do = \"reject 550 5.1.1 Not in the table\"\n",
    );
    for (bare, quoted, target) in SPELLINGS {
        for local in [bare, quoted] {
            for (from, to, wanted) in [
                (PLAIN, format!("{local}@shop.example"), format!("v{target}@one.example")),
                (PLAIN, format!("{local}@home.test"), format!("n{target}@one.example")),
                (PLAIN, format!("{local}@two.example"), format!("gate-{target}.example")),
                (PLAIN, format!("{local}@old.example"), format!("new{target}@two.example")),
                (&format!("{local}@bad.example"), PLAIN.to_owned(), "table access".to_owned()),
                (&format!("{local}@spam.example"), PLAIN.to_owned(), "Own table".to_owned()),
            ] {
                let text = explained(&server, from, &to);
                assert!(text.contains(&wanted), "{from} to {to}: {text}");
            }
            let text = explained(&server, PLAIN, &format!("{local}@relay.example"));
            assert!(!text.contains("550 5.1.1"), "{local}: {text}");
        }
    }
    assert!(explained(&server, PLAIN, "x..y@relay.example").contains("550 5.1.1 Not in the table"));
    // With a detail, in either spelling, the key without it is found, and the detail goes on.
    for local in ["a..b+x", "\"a..b+x\"", "e..f+x"] {
        let text = explained(&server, PLAIN, &format!("{local}@shop.example"));
        assert!(text.contains("+x@one.example"), "{local}: {text}");
    }
    // The command shows what the server does.
    for (table, bare) in [("users", "a..b@shop.example"), ("users", "c.@shop.example"), ("own", "e..f@spam.example")] {
        let output = server.operator(&["table", "get", table, bare]);
        assert_eq!(output.status.code(), Some(0), "{table} {bare}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// What a table leads to, and what is subscribed, gets its mail once.
#[test]
fn targets_and_subscribers_with_odd_dots_get_one_copy() {
    let lab = TestLab::sites(&["one.example"]);
    let server = with(
        builder(&lab)
            .set("domains.virtual", "[\"shop.example\"]")
            .list("news", &["a..b@one.example", "c.@one.example"]),
        &[("virtual", "a..b@shop.example \"a..b\"@one.example, a..b@one.example, c.@one.example\n")],
        "[tables.users]\nsource = \"hash:{}/virtual\"\nas = \"virtual\"\n[addresses]\nvirtual = [\"users\"]\n",
    );
    for (id, to) in [("virtual@test", "a..b@shop.example"), ("list@test", "news@lists.test")] {
        let wire = stentor_harness::message(id, "x");
        lab.recorder().expect_message(wire.clone().into());
        post_with(&server, "<me@one.example>", &[&format!("<{to}>")], &wire);
        lab.wait_clean(id, &["\"a..b\"@one.example", "\"c.\"@one.example"]);
    }
}

/// A separator that a stranger puts into quotes stays within them: no value gets a target by it.
#[test]
fn what_is_quoted_for_more_than_dots_writes_no_targets() {
    let server = with(
        bare().set("domains.virtual", "[\"shop.example\", \"pc.example\"]"),
        &[
            ("virtusers", "info+*@shop.example desk+%2@two.example\n"),
            ("pattern", "/^([^\"]+)@pc\\.example$/ $1@two.example\n"),
        ],
        "[tables.users]\nsource = \"hash:{}/virtusers\"\nas = \"virtusertable\"\n\
         [tables.pattern]\nsource = \"pcre:{}/pattern\"\nas = \"virtual\"\n\
         [addresses]\nvirtual = [\"users\", \"pattern\"]\norigin = \"shop.example\"\n",
    );
    for local in ["\"info+x,internal,y\"", "\"info+x internal\"", "\"info+x,|id\""] {
        let text = explained(&server, PLAIN, &format!("{local}@shop.example"));
        assert!(!text.contains("two.example") && !text.contains("internal@"), "{local}: {text}");
    }
    let text = explained(&server, PLAIN, "\"x,internal,y\"@pc.example");
    assert!(!text.contains("two.example"), "{text}");
    for (address, target) in
        [("info+x@shop.example", "desk+x@two.example"), ("\"a..b\"@pc.example", "\"a..b\"@two.example")]
    {
        let text = explained(&server, PLAIN, address);
        assert!(text.contains(target), "{address}: {text}");
    }
}
