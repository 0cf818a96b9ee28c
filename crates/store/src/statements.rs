//! The SQL statements of a backend, read from its sources: a check of each of them can miss none.
//!
//! A statement is a string literal that begins as one. It may be part of a macro that gives its beginning, and may name
//! constants. Every other literal that looks like SQL is refused ([`read`] panics), so a statement cannot be put together in a
//! way that is not read here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A statement, and the name of the file that it stands in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Statement {
    pub(crate) file: String,
    pub(crate) sql: String,
}

/// The parameters with which a statement is tried, and its bound on reading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// File of the statement.
    pub(crate) file: &'static str,
    /// A part of it that no other statement of the file has; a semicolon stands for its end.
    pub(crate) part: &'static str,
    /// A list of SQL expressions.
    pub(crate) parameters: &'static str,
}

/// A string literal, and the code between it and the one before.
struct Literal {
    before: String,
    text: String,
}

/// The beginnings of statements.
const BEGINNINGS: [&str; 5] = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH "];
/// Words that only a statement has, or a part of one.
const TRAITS: [&str; 6] =
    ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ", " FROM ", " WHERE "];

// === impl Statement ===

impl Statement {
    /// The one of `cases` that is this statement's.
    ///
    /// # Panics
    /// When there is none, or more than one.
    pub(crate) fn case<'c>(&self, cases: &'c [Case]) -> &'c Case {
        let mut of_this = cases.iter().filter(|case| case.is_of(self));
        match (of_this.next(), of_this.next()) {
            (Some(case), None) => case,
            (None, _) => panic!("a statement without parameters to try it with: {self:?}"),
            (Some(one), Some(other)) => panic!("{self:?} is meant by {one:?} and {other:?}"),
        }
    }
}

// === impl Case ===

impl Case {
    pub(crate) const fn new(
        file: &'static str,
        part: &'static str,
        parameters: &'static str,
    ) -> Self {
        Self { file, part, parameters }
    }

    fn is_of(&self, statement: &Statement) -> bool {
        self.file == statement.file && format!("{};", statement.sql).contains(self.part)
    }
}

/// Refuses cases that no statement needs.
///
/// # Panics
/// When there is one.
pub(crate) fn check_needed(cases: &[Case], statements: &BTreeSet<Statement>) {
    for case in cases {
        assert!(statements.iter().any(|statement| case.is_of(statement)), "not needed: {case:?}");
    }
}

/// All statements of the sources in `folder`, a path within the crate, and of the folders in it but those of tests. `words`
/// are literals that have words of SQL and are none: messages.
///
/// # Panics
/// When a literal has words of SQL, and is no statement and no part of one that was read.
pub(crate) fn read(folder: &str, words: &[&str]) -> BTreeSet<Statement> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
    let mut paths = Vec::new();
    list(&folder, &mut paths);
    let read = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, literals(&std::fs::read_to_string(path).unwrap()))
    };
    let files: Vec<(String, Vec<Literal>)> = paths.iter().map(read).collect();
    let (mut macros, mut constants) = (BTreeMap::new(), BTreeMap::new());
    for literal in files.iter().flat_map(|(_, literals)| literals) {
        if let Some(name) = literal.names("macro_rules! ", " {")
            && is_statement(&literal.text)
            && literal.text.ends_with(' ')
        {
            macros.insert(format!("{name}!("), literal.text.clone());
        } else if let Some(name) = literal.names("const ", ": &str =") {
            constants.insert(format!("{{{name}}}"), literal.text.clone());
        }
    }
    let texts = files.iter().flat_map(|(_, literals)| literals).map(|literal| &literal.text);
    let named = |text: &String| -> Vec<String> {
        let named = constants.iter().filter(|(name, _)| text.contains(*name));
        named.map(|(_, value)| value.clone()).collect()
    };
    let parts: BTreeSet<String> = texts.filter(|text| is_statement(text)).flat_map(named).collect();
    let mut found = BTreeSet::new();
    for (file, literal) in files.iter().flat_map(|(file, all)| all.iter().map(move |it| (file, it)))
    {
        let text = &literal.text;
        let used = macros.iter().find(|(name, _)| literal.before.ends_with(*name));
        let sql = match used {
            Some((_, beginning)) => format!("{beginning}{text}"),
            None if macros.values().any(|beginning| beginning == text) => continue,
            None if is_statement(text) => text.clone(),
            // A macro gives the rest of it, which touches no table.
            None if BEGINNINGS.contains(&text.as_str()) => continue,
            None => {
                let is_constant = parts.contains(text);
                let is_known = words.iter().any(|word| text.starts_with(word));
                let has_sql = TRAITS.iter().any(|one| text.contains(one));
                assert!(is_constant || is_known || !has_sql, "part of no statement: {file} {text}");
                continue;
            }
        };
        let sql = constants.iter().fold(sql, |sql, (name, value)| sql.replace(name, value));
        assert!(!sql.contains(['{', '}']), "put together by code: {file} {sql}");
        // A macro gives the rest of it.
        let sql = if sql.ends_with("RETURNING ") { format!("{sql}1") } else { sql };
        found.insert(Statement { file: file.clone(), sql });
    }
    found
}

/// The folder's files but those of tests.
fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "races" {
            list(&path, files);
        } else if path.extension().is_some_and(|it| it == "rs") && !name.ends_with("tests.rs") {
            files.push(path);
        }
    }
}

fn is_statement(text: &str) -> bool {
    BEGINNINGS.iter().any(|begin| text.starts_with(begin) && text.len() > begin.len())
}

// === impl Literal ===

impl Literal {
    /// Its name in the code before it: the word between `left` and `right`, if nothing but code that ends there follows.
    fn names(&self, left: &str, right: &str) -> Option<&str> {
        let (_, named) = self.before.rsplit_once(left)?;
        let (name, _) = named.split_once(right)?;
        name.chars().all(|letter| letter.is_alphanumeric() || letter == '_').then_some(name)
    }
}

/// The string literals of a source, but for its tests. In these folders no character literal is a quote, and no string is
/// raw.
fn literals(source: &str) -> Vec<Literal> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    assert!(!source.contains("r#\""), "raw strings are not read");
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    let mut rest = code.as_str();
    while let Some((before, behind)) = rest.split_once('"') {
        let (text, behind) = unescaped(behind);
        found.push(Literal { before: before.trim_end().to_owned(), text });
        rest = behind;
    }
    found
}

/// A literal up to its end, and the source behind it.
fn unescaped(text: &str) -> (String, &str) {
    let mut literal = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => match letters.next() {
                Some('\n') => letters = letters.as_str().trim_start().chars(),
                Some(escaped) => literal.push(escaped),
                None => break,
            },
            letter => literal.push(letter),
        }
    }
    (literal, letters.as_str())
}
