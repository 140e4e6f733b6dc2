use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

fn line(day: u32, to: &str) -> String {
    format!("Nov {day:2} 03:00:00 mx sendmail[1]: 4AM20aBc000005: to=<{to}>, dsn=2.0.0, stat=Sent (ok)\n")
}

fn from(files: &[&Path]) -> From {
    From { files: files.iter().map(|path| path.to_path_buf()).collect(), utc: true, ..From::default() }
}

fn recipients(from: &From) -> (Vec<String>, ReadSummary) {
    let mut to = Vec::new();
    let summary = feed(from, &mut |record| {
        if let Record::Attempt(attempt) = record {
            to.push(attempt.to[0].to_owned());
        }
    });
    (to, summary.unwrap())
}

#[test]
fn rotated_and_packed_files_are_read_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let [newest, older, oldest] = ["maillog", "maillog.1", "maillog.2.gz"].map(|name| dir.path().join(name));
    std::fs::write(&newest, line(22, "c@x")).unwrap();
    std::fs::write(&older, line(21, "b@x")).unwrap();
    // Two members, as of `cat a.gz b.gz`.
    let mut packed = Vec::new();
    for to in ["a1@x", "a2@x"] {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(line(20, to).as_bytes()).unwrap();
        packed.extend(encoder.finish().unwrap());
    }
    std::fs::write(&oldest, &packed).unwrap();
    let (to, summary) = recipients(&from(&[&newest, &older, &oldest]));
    assert_eq!(to, ["a1@x", "a2@x", "b@x", "c@x"]);
    assert!(!summary.failed && summary.counters.lines == 4);

    // Cut short, and one that is not there: the rest is read, and the command fails.
    packed.truncate(packed.len() - 9);
    std::fs::write(&oldest, &packed).unwrap();
    let missing = dir.path().join("missing");
    let (to, summary) = recipients(&from(&[&missing, &newest, &oldest]));
    assert_eq!(to.first().map(String::as_str), Some("a1@x"));
    assert_eq!(to.last().map(String::as_str), Some("c@x"));
    assert!(summary.failed);
}

type Step<'a> = (&'a str, Box<dyn FnOnce() + 'a>);

/// Reads on until these recipients have come, doing something after each.
fn followed(path: &Path, mut after: Vec<Step<'_>>) {
    after.reverse();
    let from = From { follow: true, ..from(&[path]) };
    let mut next = after.pop();
    let summary = follow(&from, &mut |fed| {
        let TailEvent::Record(Record::Attempt(attempt)) = fed else { return ControlFlow::Continue(()) };
        let (expected, act) = next.take().expect("no more than expected");
        assert_eq!(attempt.to[0], expected);
        act();
        next = after.pop();
        if next.is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(!summary.unwrap().failed);
}

#[test]
fn a_log_is_followed_through_rotation_and_truncation() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("maillog");
    let renamed = dir.path().join("maillog.1");
    let append = |path: &Path, text: &str| {
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    append(&path, &line(20, "a@x"));
    append(&path, &line(20, "b@x"));
    followed(
        &path,
        vec![
            ("a@x", Box::new(|| ())),
            (
                "b@x",
                Box::new(|| {
                    std::fs::rename(&path, &renamed).unwrap();
                    append(&renamed, &line(20, "c@x"));
                    append(&path, &line(21, "d@x"));
                }),
            ),
            ("c@x", Box::new(|| ())),
            (
                "d@x",
                Box::new(|| {
                    // copytruncate; the line is shorter, so that the file is.
                    std::fs::write(&path, line(22, "e")).unwrap();
                }),
            ),
            ("e", Box::new(|| ())),
        ],
    );
}
