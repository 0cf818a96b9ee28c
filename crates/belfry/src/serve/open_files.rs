//! The limit of open files: as high as the process may set it.
//!
//! Every connection is a file, and every destination may have several. Where 1,024 files may be open, which is the usual
//! soft limit, a few dozen destinations that do not answer would leave none for the others.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of this process to the hard one, and says so when they differed. A failure is only a warning: the
/// limit stays what it was.
pub(super) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let files = show(maximum);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::info!("up to {files} files may be open"),
        Err(error) => tracing::warn!(
            %error,
            "no more than {} files may be open, as the limit cannot be raised to {files}: set it where the process is \
             started (LimitNOFILE= of systemd, ulimit -n of a shell), or some destinations may not be reached",
            show(current)
        ),
    }
}

fn show(limit: Option<u64>) -> String {
    limit.map_or_else(|| "any number of".to_owned(), |files| files.to_string())
}
