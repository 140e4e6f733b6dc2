//! A library that is loaded before libc (`LD_PRELOAD`) and takes the place of some of its calls: the server's clock is moved, and
//! the disk takes its time, as files in the server's folder say. The monotonic clock is the machine's.

use std::process::Command;

use stentor_harness::{Server, wait_until};

const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    int done = syscall(SYS_clock_gettime, id, now);
    const char *path = getenv("CLOCK_OFFSET_S");
    if (done == 0 && id == CLOCK_REALTIME && path) {
        char text[32] = {0};
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0) now->tv_sec += atoll(text);
            close(file);
        }
    }
    return done;
}

int fdatasync(int descriptor) {
    const char *slow = getenv("SYNCS_WAIT"), *seen = getenv("SYNC_WAITS");
    while (slow && seen && access(slow, F_OK) == 0) {
        int file = open(seen, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (file >= 0) close(file);
        usleep(10000);
    }
    return syscall(SYS_fdatasync, descriptor);
}
"#;

/// Makes the library in the server's folder.
pub fn preload(server: &Server) {
    let source = server.path("preload.c");
    std::fs::write(&source, LIBRARY).expect("the folder can be written");
    let library = server.path("preload.so");
    let made = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).output();
    let made = made.expect("a C compiler is there, as the build needs one");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Starts a server with the library.
pub fn start(server: &mut Server) {
    let command = command(server);
    server.start_as(command);
}

/// What starts it.
pub fn command(server: &Server) -> Command {
    let mut command = server.command();
    command.env("LD_PRELOAD", server.path("preload.so")).env("CLOCK_OFFSET_S", server.path("offset"));
    command.env("SYNCS_WAIT", server.path("syncs-wait")).env("SYNC_WAITS", server.path("sync-waits"));
    command
}

/// Sets the clock so many seconds forward, or back.
pub fn set_clock(server: &Server, by_s: i64) {
    server.write("offset", by_s.to_string().as_bytes());
}

/// From now on no sync ends, until [`let_syncs_end`].
pub fn stop_syncs(server: &Server) {
    server.write("syncs-wait", b"");
}

/// Waits until a sync has been begun that does not end.
pub fn wait_sync(server: &Server) {
    wait_until("something waits for the disk", || server.path("sync-waits").exists());
}

pub fn let_syncs_end(server: &Server) {
    std::fs::remove_file(server.path("syncs-wait")).expect("it is there");
}
