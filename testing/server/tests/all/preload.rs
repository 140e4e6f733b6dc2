//! A library that is loaded before libc (`LD_PRELOAD`) and takes the place of some of its calls: the server's clock is
//! moved, the disk takes its time, and the file system of subscribers files hangs, as files in the server's folder say.
//! The monotonic clock is the machine's.

use std::process::Command;

use stentor_harness::{Server, wait_until};

const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static void hang(const char *path, const char *call) {
    const char *folder = getenv("HANGS");
    size_t length = path ? strlen(path) : 0;
    if (!folder || length < 12 || strcmp(path + length - 12, ".subscribers")) return;
    char flag[4096];
    snprintf(flag, sizeof flag, "%s/%s-hangs", folder, call);
    while (access(flag, F_OK) == 0) usleep(10000);
}

int open64(const char *path, int flags, ...) {
    va_list all;
    va_start(all, flags);
    mode_t mode = va_arg(all, mode_t);
    va_end(all);
    hang(path, "open");
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int statx(int folder, const char *restrict path, int flags, unsigned int mask, struct statx *restrict found) {
    hang(path, "stat");
    return syscall(SYS_statx, folder, path, flags, mask, found);
}

ssize_t read(int descriptor, void *buffer, size_t bytes) {
    const char *folder = getenv("HANGS");
    char link[64], path[4096];
    if (folder && bytes > 4096) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length > 0) {
            path[length] = 0;
            hang(path, "read");
        }
    }
    return syscall(SYS_read, descriptor, buffer, bytes);
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
    command.env("HANGS", server.path(""));
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

/// From now on a call (`stat`, `open` or `read`) with a subscribers file does not return, until [`let_return`].
pub fn hang(server: &Server, call: &str) {
    server.write(&format!("{call}-hangs"), b"");
}

pub fn let_return(server: &Server, call: &str) {
    std::fs::remove_file(server.path(&format!("{call}-hangs"))).expect("it is there");
}
