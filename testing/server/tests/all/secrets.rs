//! What a crash leaves on the disk: no password, token or key.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use rustix::process::Signal;

use crate::auth::{PASSWORD, started};
use crate::tls_in::{codes, session_with};

/// A program that crashes here leaves a core dump: else nothing is shown by one that is missing.
fn leaves_core_dumps(folder: &Path) -> bool {
    let mut child = Command::new("prlimit")
        .args(["--core=unlimited", "sleep", "600"])
        .current_dir(folder)
        .spawn()
        .expect("prlimit is installed");
    // It is `sleep` once its name says so: before that a dump would be another's.
    let comm = format!("/proc/{}/comm", child.id());
    stentor_harness::wait_until("it sleeps", || std::fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::ABORT).expect("it is ours");
    let status: ExitStatus = child.wait().expect("it ends");
    status.core_dumped()
}

#[test]
fn a_server_that_crashes_leaves_no_core_dump() {
    let other = tempfile::tempdir().expect("a folder");
    if !leaves_core_dumps(other.path()) {
        eprintln!("*** SKIPPED: this machine keeps no core dumps: /proc/sys/kernel/core_pattern");
        assert!(std::env::var_os("STENTOR_NO_SKIP").is_none(), "core dumps are needed");
        return;
    }
    let (_lab, mut server) = started(|builder| builder);
    server.stop();
    let command = server.behind(&["prlimit", "--core=unlimited"]);
    server.start_as(command);
    let port = server.address_of("smtps").port();
    let login = format!("@user:ann@home.example:{PASSWORD}");
    let said = session_with(port, &["--implicit"], &["EHLO c", &login]);
    assert_eq!(codes(&said).last().unwrap(), &"235", "{said:?}");
    server.signal(Signal::ABORT);
    let status = server.wait_exit();
    assert_eq!((status.signal(), status.core_dumped()), (Some(Signal::ABORT.as_raw()), false));
    let left = std::fs::read_dir(server.folder()).expect("its folder").flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("core")).collect();
    assert!(left.is_empty(), "{left:?}");
}
