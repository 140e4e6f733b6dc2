//! Any text as a users file: no panic; a change to a good file leaves the other users as they were.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_users::text::{parse, parse_octets};
use stentor_users::{Document, FileKind};

fuzz_target!(|data: &[u8]| {
    let Ok(users) = parse_octets(FileKind::Own, data) else { return };
    let Ok(text) = std::str::from_utf8(data) else { return };
    let before = Document::new(text);
    for user in users.iter() {
        let mut document = before.clone();
        document.set(&user.name, "locked", Some("yes")).expect("the user is there");
        let after = parse(FileKind::Own, &document.text()).expect("a lock breaks nothing");
        assert_eq!(after.len(), users.len());
        assert!(after.get(&user.name).is_some_and(|user| user.is_locked));
        document.remove(&user.name).expect("the user is there");
        assert_eq!(parse(FileKind::Own, &document.text()).expect("nobody else was touched").len(), users.len() - 1);
    }
});
