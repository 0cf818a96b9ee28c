//! A Unix socket to listen on: its file has a mode, takes the place of one that a dead process has left, and goes with the socket.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// A Unix socket that listens. Dropping it removes its file, unless another one has that name by now.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket, removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode: another file may have the name by then.
    identity: (u64, u64),
}

// === impl UnixSocket ===

impl UnixSocket {
    /// Listens at `path` with a file of `mode`: users that may write to it may connect. The file of a socket on which no process listens is
    /// replaced.
    ///
    /// # Errors
    /// When a process listens there, when there is something else than a socket, and when the directory takes no file.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        let refuse = |message: &str| io::Error::other(message.to_owned());
        let (Some(directory), Some(_)) = (path.parent(), path.file_name()) else {
            return Err(refuse("the path must name a file in a directory"));
        };
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        // Of two processes that find the same dead socket, one would remove the new one of the other: they go one after the other.
        let lock = File::open(directory)?;
        lock.lock()?;
        refuse_taken(path)?;
        // Made under another name, so that it is never there with another mode, and put in the place of a dead one in one step.
        let unplaced = directory.join(format!(".b{}", std::process::id()));
        remove_if_there(&unplaced)?;
        let listener = UnixListener::bind(&unplaced)?;
        let placed = fs::set_permissions(&unplaced, Permissions::from_mode(mode))
            .and_then(|()| fs::symlink_metadata(&unplaced))
            .and_then(|metadata| fs::rename(&unplaced, path).map(|()| identity(&metadata)));
        if placed.is_err() {
            remove_if_there(&unplaced)?;
        }
        let file = SocketFile { path: path.to_owned(), identity: placed? };
        listener.set_nonblocking(true)?;
        Ok(Self { listener, file })
    }

    /// The socket and its file, which is to be kept as long as it.
    pub(super) fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// Fails if there is anything at `path` but the socket of a process that is gone.
fn refuse_taken(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        let message = "there is a file that is no socket: remove it, or name another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    // Without waiting: a process whose queue is full listens as well, and a start must not hang on it.
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        Ok(()) | Err(_) => {
            let message = "another process listens there: end it, or name another path";
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        }
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

// === impl SocketFile ===

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| identity(&metadata) == self.identity);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "socket file not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_has_its_mode_and_takes_its_file_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let socket = UnixSocket::bind(&path, 0o640).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o640);
        UnixStream::connect(&path).unwrap();
        drop(socket);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_dead_socket_is_replaced_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        // Dropping a listener of the standard library leaves its file, as the end of a process does.
        drop(UnixListener::bind(&path).unwrap());
        let first = UnixSocket::bind(&path, 0o600).unwrap();
        let refused = UnixSocket::bind(&path, 0o600).unwrap_err();
        assert!(refused.to_string().contains("another process listens"), "{refused}");
        UnixStream::connect(&path).unwrap();
        // A successor that has taken the name over keeps its file.
        fs::remove_file(&path).unwrap();
        let _successor = UnixSocket::bind(&path, 0o600).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        let file = directory.path().join("notes");
        fs::write(&file, "kept").unwrap();
        let refused = UnixSocket::bind(&file, 0o600).unwrap_err();
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }

    #[test]
    fn a_socket_whose_queue_is_full_is_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let busy = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        busy.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        busy.listen(0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        let refused = UnixSocket::bind(&path, 0o600).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{refused}");
    }
}
