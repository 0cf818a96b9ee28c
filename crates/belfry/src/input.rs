//! Files that commands read; `-` is standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Opens `file`, and says how many bytes it has, if that is known.
pub(crate) fn open(file: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
    if is_standard(file) {
        return Ok((Box::new(io::stdin()), None));
    }
    let file = File::open(file)?;
    // Of a pipe or a device the length says nothing.
    let bytes = Some(file.metadata()?).filter(std::fs::Metadata::is_file).map(|data| data.len());
    Ok((Box::new(file), bytes))
}

/// True if `file` stands for standard input.
pub(crate) fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}
