//! A salvaged store keeps operators' decisions: held messages stay held.

use stentor_harness::Server;

use crate::crash::{find, flip, ten_waiting};
use crate::kit::fates;

fn held(server: &Server) -> u64 {
    server.queue()["held"].as_u64().expect("a number")
}

#[test]
fn a_hold_survives_the_salvage_of_a_damaged_store() {
    let (lab, mut server, ids) = ten_waiting();
    server.start_again();
    let exported = server.operator(&["queue", "export", "--all"]);
    let text = String::from_utf8(exported.stdout).expect("JSON is UTF-8");
    let queued: Vec<serde_json::Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let id_of = |wanted: &str| {
        let found = queued.iter().find(|message| message["message_id"].as_str().is_some_and(|id| id.contains(wanted)));
        found.and_then(|message| message["id"].as_str()).unwrap_or_else(|| panic!("{wanted} in {text}")).to_owned()
    };
    for n in [2, 5, 7] {
        let done = server.operator(&["hold", "--id", &id_of(&ids[n])]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(held(&server), 3);
    server.kill();
    // One of the others is damaged: the start is refused, and everything else is saved.
    let (path, at) = find(&server, &format!("the body of {}\r\n", ids[4]));
    flip(&path, at + 3);
    assert!(!server.command().output().expect("the binary can be run").status.success());
    let (journal, saved) = (server.path("data").join("journal"), server.path("saved"));
    let (old, new) = (journal.to_str().expect("a plain path"), saved.to_str().expect("a plain path"));
    let output = std::process::Command::new(stentor_harness::stentor())
        .args(["journal", "salvage", old, "--to", new])
        .output()
        .expect("the binary can be run");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("9 messages waiting for 9 recipients"), "{told}");
    std::fs::rename(&journal, server.path("damaged")).expect("the folder is ours");
    std::fs::rename(&saved, &journal).expect("the folder is ours");
    server.start_again();
    assert_eq!((fates(&server).pending, held(&server)), (9, 3));
    let released = server.operator(&["release", "--all"]);
    assert!(released.status.success() && held(&server) == 0, "{}", String::from_utf8_lossy(&released.stdout));
    drop(lab);
}
