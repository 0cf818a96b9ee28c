//! Positions in the shards of Kinesis, kept in a file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use stream::StreamError;
use stream::kinesis::{Positions, ShardLease, ShardPosition};

/// Positions in a file of JSON: each shard with the sequence number up to which all is acknowledged, or `null` when it is read to its
/// end. Replaced as a whole, and synced, with each save. There is one reader: it has all shards.
#[derive(Debug, Clone)]
pub(super) struct FilePositions {
    file: PathBuf,
    positions: Arc<Mutex<BTreeMap<String, Option<String>>>>,
}

// === impl FilePositions ===

impl FilePositions {
    /// Reads `file`, which need not be there.
    ///
    /// # Errors
    /// When it cannot be read, or holds something else.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        let positions = match fs::read(file) {
            Ok(json) => serde_json::from_slice(&json).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { file: file.to_owned(), positions: Arc::new(Mutex::new(positions)) })
    }

    /// Keeps a position, and writes all of them.
    fn write(&self, shard: String, position: Option<String>) -> io::Result<()> {
        // Held while it is written: the files of two saves do not cross.
        let mut positions = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        positions.insert(shard, position);
        let beside = self.file.with_extension("new");
        let mut new = File::create(&beside)?;
        new.write_all(&serde_json::to_vec(&*positions)?)?;
        new.sync_all()?;
        fs::rename(&beside, &self.file)?;
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

#[async_trait]
impl Positions for FilePositions {
    async fn lease(&self, shards: &[String]) -> Result<Vec<ShardLease>, StreamError> {
        let positions = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        let position = |shard: &String| {
            positions.get(shard).map(|position| match position {
                Some(number) => ShardPosition::After(number.clone()),
                None => ShardPosition::Finished,
            })
        };
        let lease = |shard: &String| ShardLease { position: position(shard), is_held: true };
        Ok(shards.iter().map(lease).collect())
    }

    async fn save(&self, shard: &str, position: &ShardPosition) -> Result<(), StreamError> {
        let (this, shard) = (self.clone(), shard.to_owned());
        let position = match position {
            ShardPosition::After(number) => Some(number.clone()),
            ShardPosition::Finished => None,
        };
        let written = tokio::task::spawn_blocking(move || this.write(shard, position)).await;
        let written = written.map_err(io::Error::other).and_then(|written| written);
        written.map_err(|error| {
            let file = self.file.display();
            StreamError::Unavailable(format!("positions are not written to {file}: {error}"))
        })
    }

    async fn release(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn positions_are_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("positions.json");
        let after = ShardPosition::After("49".to_owned());
        let shards = ["a", "b"].map(str::to_owned);
        let of_both = |one, other| {
            [one, other].map(|position| ShardLease { position, is_held: true }).to_vec()
        };
        let positions = FilePositions::open(&file).unwrap();
        assert_eq!(positions.lease(&shards).await, Ok(of_both(None, None)));
        positions.save("a", &after).await.unwrap();
        positions.save("b", &ShardPosition::Finished).await.unwrap();
        let positions = FilePositions::open(&file).unwrap();
        let expected = of_both(Some(after), Some(ShardPosition::Finished));
        assert_eq!(positions.lease(&shards).await, Ok(expected));
        fs::write(&file, "[]").unwrap();
        assert!(FilePositions::open(&file).is_err());
    }
}
