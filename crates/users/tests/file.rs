//! Tests of the file on a real disk: replaced as a whole, read again, refused if others could read it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use stentor_users::{Document, DocumentError, FileError, FileKind, UserChanges, UsersFile, UsersRefresh, change};

const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$AQEBAQEBAQEBAQEBAQEBAQ$Yf4vEnRjF1Gf5UN0m7TMJcpkJOm3Tk0eLMkHRHRYzQU";

fn add(name: &str) -> impl FnOnce(&mut Document) -> Result<(), DocumentError> {
    move |document| {
        document.add(name)?;
        document.set(name, "password", Some(HASH))
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_file_is_made_changed_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    assert!(matches!(UsersFile::open(FileKind::Own, &path), Err(FileError::Io { .. })));
    change(FileKind::Own, &path, add("ann@example.org")).unwrap();
    assert_eq!(mode(&path), 0o600);
    let mut file = UsersFile::open(FileKind::Own, &path).unwrap();
    let before = file.users().clone();
    assert!(before.get("ann@example.org").is_some());
    assert!(matches!(file.refresh(), UsersRefresh::Same));
    change(FileKind::Own, &path, add("bob@example.org")).unwrap();
    let UsersRefresh::Replaced(users) = file.refresh() else { panic!("not read") };
    assert_eq!((users.len(), before.len()), (2, 1));
    assert!(fs::read_to_string(&path).unwrap().starts_with("# Users who may log in"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_broken_or_open_file_leaves_the_version_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    change(FileKind::Own, &path, add("ann@example.org")).unwrap();
    let mut file = UsersFile::open(FileKind::Own, &path).unwrap();
    fs::write(&path, "[ann@example.org]\nnonsense\n").unwrap();
    let UsersRefresh::Kept(error) = file.refresh() else { panic!("taken") };
    let text = error.to_string();
    assert!(text.contains("users:2: neither [NAME]") && text.contains("users:1: ann@example.org has no"), "{text}");
    assert!(matches!(file.refresh(), UsersRefresh::Same), "said once");
    assert!(file.users().get("ann@example.org").is_some());
    // Not changed either: whoever has it open in an editor must fix it.
    assert!(matches!(change(FileKind::Own, &path, add("bob@example.org")), Err(FileError::Faults { .. })));
    fs::remove_file(&path).unwrap();
    assert!(matches!(file.refresh(), UsersRefresh::Kept(FileError::Io { .. })));
    change(FileKind::Own, &path, add("bob@example.org")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let UsersRefresh::Kept(error) = file.refresh() else { panic!("taken") };
    assert!(error.to_string().contains("chmod 600"), "{error}");
    assert!(matches!(file.refresh(), UsersRefresh::Same), "said once");
    assert_eq!(file.users().iter().map(|user| user.name.to_string()).collect::<Vec<_>>(), ["ann@example.org"]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let UsersRefresh::Replaced(users) = file.refresh() else { panic!("it did what was asked, and is not read") };
    assert!(users.get("bob@example.org").is_some());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(file.refresh(), UsersRefresh::Kept(FileError::Mode { .. })));
    assert_eq!(file.users().iter().map(|user| user.name.to_string()).collect::<Vec<_>>(), ["bob@example.org"]);
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    change(FileKind::Own, &path, add("ann@example.org")).unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(
        change(FileKind::Own, &path, add("ann@example.org")),
        Err(FileError::Change(DocumentError::Known(_)))
    ));
    // A change with an invalid result is not written.
    let bad = change(FileKind::Own, &path, |document| document.set("ann@example.org", "locked", Some("perhaps")));
    assert!(matches!(bad, Err(FileError::Faults { .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn the_groups_right_and_a_link_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("users"), folder.path().join("link"));
    change(FileKind::Own, &path, add("ann@example.org")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&path, &link).unwrap();
    change(FileKind::Own, &link, add("bob@example.org")).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(mode(&path), 0o640);
    assert_eq!(UsersFile::open(FileKind::Own, &path).unwrap().users().len(), 2);
}

#[test]
fn two_at_a_time_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    let all: Vec<_> = (0..8)
        .map(|n| {
            let path = path.clone();
            std::thread::spawn(move || change(FileKind::Own, &path, add(&format!("user{n}@example.org"))).unwrap())
        })
        .collect();
    for one in all {
        one.join().unwrap();
    }
    assert_eq!(UsersFile::open(FileKind::Own, &path).unwrap().users().len(), 8);
}

#[test]
fn local_settings_need_not_be_there_and_stay_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dovecot-users");
    let mut file = UsersFile::open(FileKind::DovecotOverrides, &path).unwrap();
    assert!(file.users().is_empty() && matches!(file.refresh(), UsersRefresh::Same));
    let lock = |locked| {
        let changes = UserChanges { locked: Some(locked), ..UserChanges::default() };
        change(FileKind::DovecotOverrides, &path, |document| {
            changes.apply(FileKind::DovecotOverrides, document, "Ann@example.org")
        })
    };
    lock(true).unwrap();
    assert!(mode(&path) == 0o600 && fs::read_to_string(&path).unwrap().starts_with("# Local settings for users"));
    let UsersRefresh::Replaced(users) = file.refresh() else { panic!("it is there now") };
    assert!(users.get("ann@example.org").unwrap().is_locked);
    // Locked users stay locked.
    fs::remove_file(&path).unwrap();
    assert!(matches!(file.refresh(), UsersRefresh::Kept(FileError::Io { .. })));
    assert!(file.users().get("ann@example.org").unwrap().is_locked);
    lock(true).unwrap();
    lock(false).unwrap();
    let UsersRefresh::Replaced(users) = file.refresh() else { panic!("it is there again") };
    assert!(users.is_empty());
}

/// The server's user owns the folder and may put a link there; root changes nothing through it.
#[test]
fn root_follows_no_link_that_the_servers_user_has_made() {
    const SERVER: u32 = 12_345;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let roots = tempfile::tempdir().unwrap();
    fs::set_permissions(roots.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = tempfile::tempdir().unwrap();
    chown(data.path(), Some(SERVER), Some(SERVER)).unwrap();
    let path = data.path().join("dovecot-users");
    let lock = |path: &Path| {
        let changes = UserChanges { locked: Some(true), ..UserChanges::default() };
        change(FileKind::DovecotOverrides, path, |document| {
            changes.apply(FileKind::DovecotOverrides, document, "ann@example.org")
        })
    };
    lock(&path).unwrap();
    let made = fs::metadata(&path).unwrap();
    assert_eq!((made.uid(), made.gid(), mode(&path)), (SERVER, SERVER, 0o600), "what is made is the server's");
    fs::remove_file(&path).unwrap();
    let target = roots.path().join("target");
    symlink(&target, &path).unwrap();
    assert!(matches!(lock(&path), Err(FileError::Io { .. })) && !target.exists());
    fs::write(&target, "root's").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(lock(&path).is_err());
    assert_eq!((fs::read_to_string(&target).unwrap(), fs::metadata(&target).unwrap().uid()), ("root's".to_owned(), 0));
    // In a file of ours, a dangling link is not followed either.
    let users = data.path().join("users");
    symlink(roots.path().join("other"), &users).unwrap();
    assert!(change(FileKind::Own, &users, add("ann@example.org")).is_err() && !roots.path().join("other").exists());
}
