//! `stentor-kit lab limit`: every mode delivers, and syncs are counted as requested.

use serde_json::Value;

use crate::lab_source::{lab, sink};

#[test]
fn all_ways_with_and_without_syncs() {
    let folder = tempfile::tempdir().expect("made");
    let path = folder.path().display().to_string();
    let seconds = ["--seconds", "0.1", "--runs", "1", "--json", "--quiet"];
    let output = lab(&[&["limit", "--connections", "1,4", "--queue", &path], &seconds[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let rows = report["tables"]["limit"].as_array().expect("a table");
    // Five ways, two numbers of connections, three kinds of sink.
    assert_eq!(rows.len(), 30);
    for row in rows {
        assert!(row["messages_per_h"]["median"].as_f64() > Some(0.0), "{row}");
        let syncs = row["syncs_per_message"]["median"].as_f64();
        match row["sink"].as_str() {
            Some("counted only") => assert_eq!(syncs, None),
            Some("a sync each") => assert_eq!(syncs, Some(1.0), "{row}"),
            // At the end of a run some are synced that nobody waits for; on a slow disk there are few others.
            _ => assert!(syncs > Some(0.0) && syncs <= Some(2.0), "{row}"),
        }
        if row["way"] == "many recipients" {
            let [recipients, messages] = ["recipients_per_s", "messages_per_s"].map(|name| row[name].as_f64());
            let ratio = recipients.zip(messages).map(|(recipients, messages)| recipients / messages);
            assert!(ratio.is_some_and(|ratio| (ratio - 50.0).abs() < 0.01), "{row}");
        }
    }
    assert_eq!(report["notes"].as_array().map(Vec::len), Some(3));
    assert!(report["places"][0]["file_system"].is_string());
    assert_eq!(std::fs::read_dir(folder.path()).expect("is there").count(), 0, "it leaves nothing");
}

#[test]
fn a_given_server_and_mistakes() {
    let sink = sink("");
    let target = sink.address.to_string();
    let more = ["--connections", "2", "--seconds", "0.1", "--runs", "1", "--quiet"];
    let output = lab(&[&["limit", &target], &more[..]].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("this server: at best"));
    assert_eq!(sink.recorder.stats().violations, 0);
    for (arguments, why) in [
        (vec!["127.0.0.1:1"], "accepted no message"),
        (vec!["--connections", "0"], "at least 1"),
        (vec!["--queue", "/nowhere"], "create it first"),
        (vec!["--size", "x"], "not a valid size"),
    ] {
        let words = [&["limit"], &arguments[..], &["--seconds", "0.1", "--quiet"]].concat();
        let output = lab(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }
}
