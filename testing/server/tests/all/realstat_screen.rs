//! `realstat` in a real terminal: tmux is the terminal, its keys and its screen.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use stentor_harness::{Server, TestLab, message, skipped, stentor, wait_until};

use crate::kit::builder;

/// A terminal of 80 columns and 24 rows with a shell that is gone when its command is.
struct Terminal {
    socket: std::path::PathBuf,
}

impl Terminal {
    /// `None` where there is no tmux.
    fn start(folder: &Path, name: &str, command: &str) -> Option<Terminal> {
        let terminal = Terminal { socket: folder.join(name) };
        let begun = terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command]);
        if begun.is_none() {
            skipped("there is no tmux (testing/install.sh installs it)");
        }
        begun.map(|output| {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            terminal
        })
    }

    fn tmux(&self, arguments: &[&str]) -> Option<Output> {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(arguments).stdin(Stdio::null()).env_remove("TMUX");
        command.env("LC_ALL", "C.UTF-8").env("TERM", "xterm").output().ok()
    }

    fn keys(&self, keys: &[&str]) {
        let sent = self.tmux(&[&["send-keys"], keys].concat()).expect("it runs");
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    }

    fn screen(&self) -> String {
        let shown = self.tmux(&["capture-pane", "-p"]).expect("it runs");
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    /// Waits until the screen holds all of them.
    #[track_caller]
    fn wait(&self, parts: &[&str]) -> String {
        let mut screen = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(&format!("{parts:?}"), || {
                screen = self.screen();
                parts.iter().all(|part| screen.contains(part))
            });
        }));
        assert!(found.is_ok(), "waited in vain for {parts:?}:\n{screen}");
        screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn send(server: &Server, to: &str, id: &str) -> String {
    server.smtp().send("me@home.example", &[to], &message(id, "x")).expect(250).queue_id()
}

#[test]
fn the_view_fills_a_terminal_and_gives_it_back() {
    let lab = TestLab::start(
        "[[site]]\nname = 'one.example'\n[[site]]\nname = 'down.example'\nbehaviour = { connect = 'refuse' }\n",
    );
    let mut server = builder(&lab)
        .set("retry.host_max_s", "7200")
        .set("retry.host_min_s", "3600")
        .list("news", &["ann@one.example", "bob@down.example"])
        .start();
    let id = send(&server, "news@lists.test", "post@test");
    wait_until("what cannot go has been tried", || {
        server.ask(&["queue", "show", &id]).is_ok_and(|m| m["recipients"][0]["state"] == "deferred")
    });
    // A shell around it, to see what it leaves behind.
    let command =
        format!("{} realstat --config {}; echo LEFT; exec cat", stentor().display(), server.config().display());
    let Some(terminal) = Terminal::start(server.folder(), "tmux1", &command) else { return };
    terminal.wait(&[
        "stentor realstat  mx.test",
        "delivered",
        "down.example",
        "q quit",
        "waiting for",
        "next try",
        "refused",
        "1 bulk",
    ]);
    terminal.wait(&["state", "down", "Connection refused", "of 800", "sync", "cpu", "disk"]);
    terminal.wait(&["waiting: 1 of 1 recipient: connection refused"]);
    // Sites, one of them, and back.
    terminal.keys(&["2"]);
    terminal.wait(&["1 site, most waiting first"]);
    terminal.keys(&["Enter"]);
    terminal.wait(&["site mx1.down.example", "waits for", "1 failure"]);
    terminal.keys(&["Escape"]);
    terminal.wait(&["1 site, most"]);
    terminal.keys(&["s"]);
    terminal.wait(&["slowest first"]);
    // Messages, one of them.
    terminal.keys(&["3"]);
    terminal.wait(&["1 recipient in 1 message", &id, "news"]);
    terminal.keys(&["Enter"]);
    terminal.wait(&[&format!("message {id}"), "bob@down.example"]);
    terminal.keys(&["q"]);
    // A filter, a pause, help.
    terminal.keys(&["1", "l", "n", "e", "w", "s", "Enter"]);
    terminal.wait(&["list news", "waiting 1 of 1 in all"]);
    terminal.keys(&["p"]);
    terminal.wait(&["PAUSED"]);
    terminal.keys(&["p", "?"]);
    terminal.wait(&["hold the row's messages"]);
    terminal.keys(&["Escape"]);
    wait_until("the help is gone", || !terminal.screen().contains("hold the row's messages"));
    terminal.keys(&["Escape"]);
    wait_until("the filter is gone", || !terminal.screen().contains("list news"));
    // Another size.
    terminal.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    wait_until("the footer is where the screen ends now", || {
        terminal.screen().lines().nth(39).is_some_and(|line| line.starts_with("q quit"))
    });
    // A restart of the server.
    server.kill();
    terminal.wait(&["STALE"]);
    server.start_again();
    wait_until("it is connected again", || !terminal.screen().contains("STALE"));
    terminal.keys(&["q"]);
    let left = terminal.wait(&["LEFT"]);
    assert!(!left.contains("q quit"), "the screen is as it was before: {left}");
}

/// A filter that is refused changes nothing; actions say what they are about, and wait for a `y`.
#[test]
fn a_wrong_filter_is_refused_and_actions_are_confirmed() {
    let lab = TestLab::start("[[site]]\nname = 'down.example'\nbehaviour = { connect = 'refuse' }\n");
    let server = builder(&lab).set("retry.host_max_s", "7200").set("retry.host_min_s", "3600").start();
    let id = send(&server, "bob@down.example", "held@test");
    server.wait_log(&["Connection refused"]);
    let command = format!("{} realstat --config {}; exec cat", stentor().display(), server.config().display());
    let Some(terminal) = Terminal::start(server.folder(), "tmux1", &command) else { return };
    terminal.wait(&["waiting 1 ", "mx1.down.example"]);
    terminal.keys(&["/", "d", "o", "w", "n", ".", "e", "x", "m", "p", "l", "e", "Enter"]);
    terminal.wait(&["no site down.exmple; did you mean mx1.down.example?"]);
    send(&server, "eve@down.example", "second@test");
    // Live, and of everything.
    let screen = terminal.wait(&["waiting 2 "]);
    assert!(!screen.contains("STALE"), "{screen}");
    terminal.keys(&["/", "d", "o", "w", "n", ".", "e", "x", "a", "m", "p", "l", "e", "Enter"]);
    terminal.wait(&["site down.example"]);
    terminal.keys(&["Escape"]);
    wait_until("everything again", || !terminal.screen().contains("site down.example"));
    // What is asked is not done before it is confirmed.
    terminal.keys(&["S"]);
    terminal.wait(&["Suspend mx1.down.example?", "This affects 2 recipients of 2 messages."]);
    terminal.keys(&["n"]);
    terminal.wait(&["cancelled"]);
    assert_eq!(server.status()["suspended_total"], 0);
    terminal.keys(&["S"]);
    terminal.wait(&["This affects 2 recipients"]);
    terminal.keys(&["y"]);
    terminal.wait(&["site mx1.down.example is suspended"]);
    assert_eq!(server.status()["suspended_total"], 1);
    terminal.wait(&["suspended   mx1.down.example", "audit", ": reason realstat, site mx1.down.example"]);
    terminal.keys(&["3"]);
    terminal.wait(&[&id]);
    terminal.keys(&["H"]);
    terminal.wait(&["Hold message", "This affects 1 recipient of 1 message."]);
    terminal.keys(&["y"]);
    wait_until("it is held", || server.ask(&["queue"]).is_ok_and(|queue| queue["held"] == 1));
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let lab = TestLab::sites(&["one.example"]);
    let server = builder(&lab).start();
    let pid = server.path("pid");
    let command = format!(
        "sh -c 'echo $$ > {}; exec {} realstat --config {}'; echo LEFT; stty -a; exec cat",
        pid.display(),
        stentor().display(),
        server.config().display()
    );
    let Some(terminal) = Terminal::start(server.folder(), "tmux1", &command) else { return };
    terminal.wait(&["stentor realstat  mx.test"]);
    let asked = Command::new("kill").arg(std::fs::read_to_string(&pid).expect("it is written").trim()).status();
    assert!(asked.is_ok_and(|status| status.success()));
    let left = terminal.wait(&["LEFT", "icanon"]);
    assert!(!left.contains("-icanon"), "the terminal takes lines again: {left}");
    // Nor does Ctrl-C leave it behind.
    drop(terminal);
    let command =
        format!("{} realstat --config {}; echo LEFT; exec cat", stentor().display(), server.config().display());
    let Some(terminal) = Terminal::start(server.folder(), "tmux2", &command) else { return };
    terminal.wait(&["stentor realstat  mx.test"]);
    terminal.keys(&["C-c"]);
    terminal.wait(&["LEFT"]);
}

#[test]
fn the_view_ends_with_its_terminal() {
    let lab = TestLab::start("[[site]]\nname = 'one.example'\n");
    let server = builder(&lab).start();
    let command = format!("exec {} realstat --config {}", stentor().display(), server.config().display());
    let Some(terminal) = Terminal::start(server.folder(), "tmux9", &command) else { return };
    terminal.wait(&["stentor realstat", "q quit"]);
    let pid = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]).expect("it runs").stdout;
    let process = Path::new("/proc").join(String::from_utf8_lossy(&pid).trim());
    assert!(process.join("cmdline").exists(), "{process:?}");
    drop(terminal);
    wait_until("the view has ended", || !process.join("cmdline").exists());
}
