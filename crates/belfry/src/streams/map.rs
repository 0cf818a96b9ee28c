//! Maps that stand in files.

use std::path::Path;

use pipeline::ingest::EventMap;

/// Reads and compiles the map in `file`: JSON of the shape that is wanted, with templates.
///
/// # Errors
/// When it cannot be read, or is no map; with the file's name.
pub(crate) fn read_map(file: &Path) -> Result<EventMap, String> {
    let shown = file.display();
    let json = std::fs::read(file).map_err(|error| format!("cannot read {shown}: {error}"))?;
    EventMap::compile(&json.into()).map_err(|invalid| format!("{shown}: {invalid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_or_refused_with_the_name_of_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("map.json");
        let refused = |file: &Path| read_map(file).unwrap_err();
        assert!(refused(&file).contains("map.json"), "{}", refused(&file));
        std::fs::write(&file, "{\"to\": \"{{ body.\"}").unwrap();
        assert!(refused(&file).contains("map.json: to: "), "{}", refused(&file));
        std::fs::write(&file, "{\"to\": \"{{ body.to }}\"}\n").unwrap();
        assert!(read_map(&file).is_ok());
    }
}
