//! Tests the commands on sound, damaged and old stores.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use stentor_config::check_text;
use stentor_control::doctor::{Finding, Severity};
use stentor_journal::{Disk, Journal, RealDisk};
use stentor_queue::event::{Accept, Event, Fate};
use stentor_queue::ids::{AddressId, ContentId};
use stentor_queue::store::Store;

use super::doctor::examine;
use super::fixture::{Maker, body, make, make_posts, make_quarantine, message, options};
use super::{Outcome, dump, eml, salvage, verify};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn output(run: impl FnOnce(&mut Vec<u8>) -> Outcome) -> (bool, String) {
    let mut out = Vec::new();
    let sound = run(&mut out).unwrap();
    (sound, String::from_utf8(out).unwrap())
}

fn reading(path: &Path) -> RealDisk {
    RealDisk::open_unlocked(path).unwrap()
}

/// Every file's bytes and modification time.
fn state_of(path: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    files
        .map(|file| (file.path(), (fs::read(file.path()).unwrap(), file.metadata().unwrap().modified().unwrap())))
        .collect()
}

fn flip(path: &Path, offset: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
}

/// The file and offset of a content's first bytes.
fn place_of(path: &Path, content: u64) -> (PathBuf, u64) {
    let (_, lines) = output(|out| dump::records(&reading(path), out));
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let pieces: Vec<Value> = lines.filter(|line| line["content"] == content && line["start"] == 0).collect();
    let piece = pieces.last().unwrap();
    (path.join(piece["file"].as_str().unwrap()), piece["offset"].as_u64().unwrap())
}

fn opened(path: &Path) -> (Journal, Store) {
    let mut store = Store::new();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(path).unwrap());
    let (mut journal, _) = Journal::open(disk, options(), &mut |record| {
        store.apply_record(record.payload)?;
        Ok(())
    })
    .unwrap();
    store.replayed().unwrap();
    journal.retain_contents(&mut |id| store.has_content(ContentId(id))).unwrap();
    (journal, store)
}

fn content(journal: &Journal, id: u64) -> Vec<u8> {
    let reader = journal.reader();
    let mut bytes = vec![0; reader.len(id).unwrap() as usize];
    reader.read_at(id, 0, &mut bytes).unwrap();
    bytes
}

fn assert_same(store: &Store, wanted: &Store) {
    assert_eq!((store.len(), store.totals(), store.pending()), (wanted.len(), wanted.totals(), wanted.pending()));
    for (_, message) in wanted.messages() {
        let found = store.no_of(message.id()).and_then(|no| store.message(no)).unwrap();
        assert_eq!(found, message);
        let texts = |store: &Store| {
            message.pending().iter().map(|id| store.book.text(AddressId(id)).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(texts(store), texts(wanted));
    }
    assert!(store.lists().eq(wanted.lists()));
    assert!(store.is_balanced());
}

/// Checks what a fixture of any format holds.
fn assert_fixture(path: &Path) {
    let (journal, store) = opened(path);
    assert_eq!((store.len(), store.pending(), store.book.len()), (4, 6, 5));
    assert_eq!(
        (store.totals().acknowledged, store.totals().fates.delivered, store.totals().fates.bounced),
        (21, 14, 1)
    );
    assert_eq!(store.list("news").unwrap().ids.iter().collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!(content(&journal, 3), body(3, 60));
    assert_eq!(content(&journal, 9), body(9, 60));
    assert_eq!(content(&journal, 20), body(20, 400));
    assert_eq!(content(&journal, 21), b"a\r\nb\n");
    let rich = store.no_of(message(20, 0, 0, &[]).id).and_then(|no| store.message(no)).unwrap();
    assert_eq!(
        (rich.list(), rich.envid(), rich.prefix()),
        (Some("news"), Some("QQ314159"), &b"List-Id: <news.example.org>\r\n"[..])
    );
    assert_eq!(rich.params(AddressId(3)).unwrap().notify, Some(2));
}

/// Checks the history that events of version 2 carry.
fn assert_history(path: &Path) {
    let book = opened(path).1.book;
    assert_eq!((book.history(AddressId(0)).deliveries(), book.history(AddressId(1)).refusals()), (1, 1));
    let site = book.site_history(book.domain(AddressId(0)));
    assert_eq!((site.connections(), site.counts(super::fixture::NOW)), (3, (1, 0)));
    assert!(site.xdelay_ms().is_some_and(|ms| (1_100..=1_200).contains(&ms)));
    assert_eq!((book.lookup("old@example.com"), book.id_bound()), (None, 5), "forgotten before the checkpoint");
}

#[test]
fn a_store_of_this_format_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = std::env::var_os("STENTOR_FIXTURE").map_or_else(|| directory.path().join("journal"), PathBuf::from);
    drop(make(&path));
    assert_fixture(&path);
    assert_history(&path);
}

/// Checks what [`make_quarantine`] creates, in any format.
fn assert_quarantine(path: &Path) {
    let (journal, store) = opened(path);
    let kept: Vec<_> = store.quarantined(None).map(|m| (m.id(), m.pending().iter().collect::<Vec<_>>())).collect();
    let id = |number: u64| message(number, 0, 0, &[]).id;
    assert_eq!(kept, [(id(30), vec![3, 4]), (id(32), vec![2])]);
    let first = store.in_quarantine(id(30)).unwrap();
    assert_eq!(first.quarantined_by(), "rule 1 \"odd\" (stentor.toml:9): looks odd");
    let fates = store.totals().fates;
    assert_eq!((fates.quarantined, fates.removed, fates.expired), (3, 1, 1));
    assert_eq!((store.totals().acknowledged, store.len(), store.pending()), (21 + 7, 6, 8));
    for (number, from, recipient) in [(40, 30, 0), (41, 32, 1)] {
        let released = store.no_of(id(number)).and_then(|no| store.message(no)).unwrap();
        assert_eq!((released.content(), released.held_by()), (ContentId(from), None));
        assert_eq!(released.pending().iter().collect::<Vec<_>>(), [recipient]);
        assert_eq!(content(&journal, from), body(from, 60));
    }
    assert!(journal.reader().len(31).is_none(), "the content of what expired is gone");
    assert!(store.is_balanced());
}

#[test]
fn a_store_with_a_quarantine_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = std::env::var_os("STENTOR_FIXTURE").map_or_else(|| directory.path().join("journal"), PathBuf::from);
    drop(make_quarantine(&path));
    assert_quarantine(&path);
    let fixture = fixtures().join("quarantine-v2-events-3");
    let (sound, text) = output(|out| verify::run(&reading(&fixture), out));
    assert!(sound && text.contains("3 in the quarantine"), "{text}");
    let old = tempfile::tempdir().unwrap();
    for (from, (bytes, _)) in state_of(&fixture) {
        fs::write(old.path().join(from.file_name().unwrap()), bytes).unwrap();
    }
    assert_quarantine(old.path());
}

/// Checks what [`make_posts`] creates, in any format.
fn assert_posts(path: &Path) {
    let (journal, store) = opened(path);
    let id = |number: u64| message(number, 0, 0, &[]).id;
    let posts: Vec<_> = store.posts(None).map(|post| (post.message().id(), post.missed().iter().collect())).collect();
    assert_eq!(posts, [(id(30), vec![3]), (id(31), vec![2])]);
    let post = store.post(id(40)).expect("a resend belongs to its post");
    let counts = (post.facts().total, store.delivered_of_post(post), store.waiting_for_post(post));
    assert_eq!((counts, post.fate_of(3), post.message().id()), ((4, 1, 2), Fate::Expired, id(30)));
    assert_eq!(post.messages().collect::<Vec<_>>(), [id(30), id(40)]);
    assert_eq!(store.post(id(31)).unwrap().fate_of(2), Fate::Removed);
    assert_eq!((store.totals().acknowledged, store.len(), store.pending()), (21 + 7, 6, 8));
    assert_eq!(content(&journal, 31), body(31, 60), "its message is gone, its post is kept");
    assert!(journal.reader().len(32).is_none(), "the content of what is no longer kept is gone");
    assert!(store.is_balanced());
}

#[test]
fn a_store_with_posts_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = std::env::var_os("STENTOR_FIXTURE").map_or_else(|| directory.path().join("journal"), PathBuf::from);
    drop(make_posts(&path));
    assert_posts(&path);
    let fixture = fixtures().join("posts-v2-events-3");
    let (sound, text) = output(|out| verify::run(&reading(&fixture), out));
    assert!(sound, "{text}");
    let (_, dumped) = output(|out| dump::records(&reading(&fixture), out));
    assert!(
        ["post", "resend", "post_end"].iter().all(|kind| dumped.contains(&format!("\"kind\":\"{kind}\""))),
        "{dumped}"
    );
    let old = tempfile::tempdir().unwrap();
    for (from, (bytes, _)) in state_of(&fixture) {
        fs::write(old.path().join(from.file_name().unwrap()), bytes).unwrap();
    }
    assert_posts(old.path());
}

#[test]
fn the_fixture_of_every_format_is_read() {
    let mut formats = 0;
    for entry in fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap()) {
        if !entry.file_name().to_string_lossy().starts_with("journal-v") {
            continue;
        }
        formats += 1;
        let (sound, text) = output(|out| verify::run(&reading(&entry.path()), out));
        assert!(sound, "{text}");
        let directory = tempfile::tempdir().unwrap();
        for (from, (bytes, _)) in state_of(&entry.path()) {
            fs::write(directory.path().join(from.file_name().unwrap()), bytes).unwrap();
        }
        assert_fixture(directory.path());
        if entry.file_name() != "journal-v1" {
            assert_history(directory.path());
        }
    }
    assert!(formats >= 3);
}

#[test]
fn verify_and_dump_tell_all_and_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    drop(make(directory.path()));
    let before = state_of(directory.path());
    let disk = reading(directory.path());
    let (sound, text) = output(|out| verify::run(&disk, out));
    assert!(sound, "{text}");
    assert!(text.contains("\nsound: ") && text.contains("4 messages waiting for 6 recipients"), "{text}");
    let (sound, text) = output(|out| dump::records(&disk, out));
    assert!(sound);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let accepts = lines.iter().filter(|line| line["event"]["kind"] == "accept").count();
    assert!(accepts >= 2 && lines.iter().any(|line| line["event"]["kind"] == "messages"), "{accepts}");
    assert!(lines.iter().all(|line| line["seq"].is_u64() && line["offset"].is_u64()));
    let mut out = Vec::new();
    assert!(dump::content(&disk, 20, &mut out).unwrap());
    assert_eq!(out, body(20, 400));
    assert_eq!(state_of(directory.path()), before);
}

#[test]
fn salvage_of_a_sound_store_is_the_same_store() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    let Maker { journal, store, .. } = make(&old);
    drop(journal);
    let before = state_of(&old);
    let (sound, text) = output(|out| salvage::run(&reading(&old), &new, out));
    assert!(sound && text.starts_with("everything saved: 4 messages waiting for 6 recipients"), "{text}");
    let (journal, found) = opened(&new);
    assert_same(&found, &store);
    assert_eq!(content(&journal, 20), body(20, 400));
    assert!(
        salvage::run(&reading(&old), &new, &mut Vec::new()).is_err(),
        "never into a directory with something in it"
    );
    assert_eq!(state_of(&old), before);
}

#[test]
fn damage_costs_only_what_it_hit_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new, files) = (directory.path().join("old"), directory.path().join("new"), directory.path().join("eml"));
    drop(make(&old));
    let (file, offset) = place_of(&old, 20);
    flip(&file, offset + 100);
    let before = state_of(&old);
    let disk = reading(&old);
    let (sound, text) = output(|out| verify::run(&disk, out));
    let name = file.file_name().unwrap().to_str().unwrap();
    let lost = message(20, 0, 0, &[]).id.to_string();
    assert!(!sound && text.contains(&format!("DAMAGED {name}, offset {}", offset / 4096 * 4096)), "{text}");
    assert!(text.contains(&format!("DAMAGED message {lost}: content 20 damaged from octet 0")), "{text}");
    let (sound, text) = output(|out| salvage::run(&disk, &new, out));
    assert!(
        !sound && text.contains(&format!("lost: message {lost} from <sender20@example.org> to 2 recipients")),
        "{text}"
    );
    let (journal, store) = opened(&new);
    assert_eq!((store.len(), store.pending()), (3, 4));
    assert!(store.is_balanced());
    assert_eq!((content(&journal, 3), content(&journal, 9)), (body(3, 60), body(9, 60)));
    let (sound, text) = output(|out| eml::run(&disk, &files, out));
    assert!(!sound && text.contains("3 messages written to"), "{text}");
    let whole = message(9, 0, 0, &[]).id.to_string();
    assert_eq!(fs::read(files.join(format!("{whole}.eml"))).unwrap(), body(9, 60));
    let envelope: Value = serde_json::from_slice(&fs::read(files.join(format!("{whole}.json"))).unwrap()).unwrap();
    assert_eq!(envelope["sender"], "sender9@example.org");
    assert_eq!(envelope["recipients"][0]["address"], "eve@example.net");
    assert!(files.join(format!("{lost}.partial.eml")).exists());
    assert_eq!(state_of(&old), before);
}

/// Whether a start accepts the store.
fn starts(path: &Path) -> bool {
    let mut store = Store::new();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(path).unwrap());
    let opened = Journal::open(disk, options(), &mut |record| {
        store.apply_record(record.payload)?;
        Ok(())
    });
    let is_kept = |(mut journal, _): (Journal, _)| journal.retain_contents(&mut |id| store.has_content(ContentId(id)));
    opened.and_then(is_kept).is_ok()
}

#[test]
fn a_missing_segment_is_survived_by_what_is_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let all = directory.path().join("all");
    drop(make(&all));
    let names = fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut missed = 0;
    for (number, name) in names.filter(|name| name.starts_with("seg-")).enumerate() {
        let (old, new) = (directory.path().join(format!("old{number}")), directory.path().join(format!("new{number}")));
        drop(make(&old));
        fs::remove_file(old.join(&name)).unwrap();
        let (sound, _) = output(|out| salvage::run(&reading(&old), &new, out));
        // Without its head a store is in its earlier state, and nothing shows the loss.
        assert_eq!(sound, starts(&old), "{name}");
        missed += u32::from(!sound);
        let (_, store) = opened(&new);
        assert!(store.is_balanced(), "{name}");
    }
    assert!(missed > 0);
}

fn notes(data_dir: &Path, more: &str) -> Vec<Finding> {
    let text = format!("data_dir = \"{}\"\n{more}", data_dir.display());
    let config = check_text(&data_dir.join("stentor.toml"), &text).unwrap();
    examine(&config)
}

fn problems(notes: &[Finding]) -> Vec<&str> {
    notes.iter().filter(|note| note.severity == Severity::Problem).map(|note| note.what.as_str()).collect()
}

#[test]
fn doctor_tells_a_running_a_sound_a_damaged_and_a_full_store() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let told = notes(data, "");
    let first = problems(&told)[0];
    assert!(first.starts_with("no server is running: ") && first.ends_with("holds no journal yet"), "{told:?}");
    let told = notes(&data.join("slip"), "");
    let named = format!("{} (`data_dir`, its default) does not exist", data.join("slip").display());
    assert!(problems(&told)[0].ends_with(&named), "{told:?}");
    let correct = told.iter().any(|note| note.next.contains("correct `data_dir` or mount its file system"));
    assert!(correct, "{told:?}");
    let maker = make(&data.join("journal"));
    let told = notes(data, "");
    let running = format!("in use by process {}", std::process::id());
    assert!(told.iter().any(|note| note.what.contains(&running)), "{told:?}");
    assert!(!told.iter().any(|note| note.what.starts_with("no server is running")), "{told:?}");
    drop(maker);
    let told = notes(data, "");
    let stopped = "no server is running: no mail is accepted or delivered; 4 messages waiting for 6 recipients";
    assert_eq!(problems(&told), [stopped]);
    let note = told.iter().find(|note| note.what == stopped).unwrap();
    assert!(note.next.starts_with("start it with `stentor serve`; "), "{told:?}");
    let (file, offset) = place_of(&data.join("journal"), 20);
    flip(&file, offset);
    let told = notes(data, "");
    assert_eq!(problems(&told).len(), 3, "{told:?}");
    assert!(told.iter().any(|note| note.next.contains("stentor journal salvage")), "{told:?}");
    let told = notes(data, "[journal]\nreserve_bytes = 1099511627776\n");
    assert!(problems(&told).iter().any(|what| what.contains("below the reserve")), "{told:?}");
}

#[test]
fn doctor_tells_when_addresses_run_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(&directory.path().join("journal"));
    let names: Vec<String> = (0..950).map(|number| format!("a{number}@example.org")).collect();
    let entries = names.iter().enumerate().map(|(id, text)| (AddressId(id as u32), text.as_str())).collect();
    maker.event(Event::Intern { entries });
    maker.commit();
    drop(maker);
    let told = notes(directory.path(), "[journal]\naddresses_max = 1000\n");
    let near = told.iter().find(|note| note.what.starts_with("950 known addresses")).unwrap();
    assert_eq!(near.severity, Severity::Warning);
    let told = notes(directory.path(), "[journal]\naddresses_max = 10000\n");
    assert!(!told.iter().any(|note| note.what.contains("known addresses")), "{told:?}");
}

#[test]
fn what_is_said_of_a_lost_message_writes_nothing_to_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    let mut maker = Maker::new(&old);
    maker.event(Event::Intern { entries: vec![(AddressId(0), "ann@example.org")] });
    maker.commit();
    // Its content was never written.
    let lost = Accept { message_id: "<\x1b]0;owned\x07\u{9b}31m@x>".to_owned(), ..message(1, 1, 5, &[0]) };
    maker.event(Event::Accept(Box::new(lost)));
    maker.commit();
    drop(maker);
    let (sound, text) = output(|out| salvage::run(&reading(&old), &new, out));
    assert!(!sound && text.contains("owned") && text.contains("none of its pieces is readable"), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}

#[test]
fn doctor_prints_the_severity_of_a_warning_once() {
    let directory = tempfile::tempdir().unwrap();
    let list = "[lists.news]\naddress = \"news@lists.example\"\nsubscribers = \"/nonexistent/news\"\n";
    let told = notes(directory.path(), list);
    let text = told.iter().map(Finding::text).find(|text| text.contains("/nonexistent/news")).unwrap();
    assert!(text.starts_with("warning: ") && text.matches("warning:").count() == 1, "{text}");
}
