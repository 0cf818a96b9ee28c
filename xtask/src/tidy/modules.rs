//! The modules of a crate, and the imports of each: read with `syn`, tests left out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, Lit, Meta, UseTree, Visibility};

/// A path as it is written, segment by segment.
pub(crate) type Segments = Vec<String>;

/// A crate of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Krate {
    /// By their place: the root is the empty path.
    pub(crate) modules: BTreeMap<Segments, Module>,
    /// The modules that the root declares `pub`.
    pub(crate) public: BTreeSet<String>,
}

/// A module without its tests. Several inline modules share a file.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// From the root of the workspace, with `/`.
    pub(crate) file: String,
    /// Names that it defines itself.
    pub(crate) defined: HashSet<String>,
    /// Types among them: each definition, those that code within a function makes included.
    pub(crate) types: Vec<String>,
    /// Names that it imports or re-exports, and from where.
    pub(crate) imported: HashMap<String, Segments>,
    /// Paths of which it takes everything.
    pub(crate) globs: Vec<Segments>,
    /// Paths that its code names. A re-export is not among them: it only hands a name on.
    pub(crate) named: BTreeSet<Segments>,
}

/// The crates below `root`, `xtask` included, by their name in Rust code.
pub(crate) fn read(root: &Path) -> anyhow::Result<BTreeMap<String, Krate>> {
    let mut crates = BTreeMap::new();
    let folders = fs::read_dir(root.join("crates")).context("cannot read crates/")?;
    let folders = folders.map(|entry| entry.map(|entry| entry.path()));
    for folder in folders.chain([Ok(root.join("xtask"))]) {
        let folder = folder?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
        for start in ["src/lib.rs", "src/main.rs"] {
            let file = folder.join(start);
            if file.exists() {
                let krate: &mut Krate = crates.entry(name.clone()).or_default();
                Reading { root, krate }.file(Vec::new(), &file)?;
            }
        }
    }
    Ok(crates)
}

/// The crate `name` from texts: the path of each file below its root, and what it holds.
#[cfg(test)]
pub(crate) fn from_texts(name: &str, texts: &[(&str, &str)]) -> Krate {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in texts {
        let path = root.path().join(name).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut krate = Krate::default();
    let mut reading = Reading { root: root.path(), krate: &mut krate };
    reading.file(Vec::new(), &root.path().join(name).join("lib.rs")).unwrap();
    krate
}

/// A crate on its way in.
struct Reading<'a> {
    root: &'a Path,
    krate: &'a mut Krate,
}

// === impl Reading ===

impl Reading<'_> {
    fn file(&mut self, place: Segments, path: &Path) -> anyhow::Result<()> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let parsed =
            syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        self.items(place, path, &parsed.items)
    }

    /// The items of the module at `place`, which stands in `path`.
    fn items(&mut self, place: Segments, path: &Path, items: &[Item]) -> anyhow::Result<()> {
        let file = path.strip_prefix(self.root).unwrap_or(path).to_string_lossy().into_owned();
        let mut module = Module { file, ..Module::default() };
        for item in items {
            let Item::Mod(inner) = item else {
                module.visit_item(item);
                continue;
            };
            if is_test(&inner.attrs) {
                continue;
            }
            let name = inner.ident.to_string();
            if place.is_empty() && matches!(inner.vis, Visibility::Public(_)) {
                self.krate.public.insert(name.clone());
            }
            let child = [place.clone(), vec![name]].concat();
            if let Some((_, items)) = &inner.content {
                self.items(child, path, items)?;
            } else {
                let file = file_of(path, &inner.attrs, &child)?;
                self.file(child, &file)?;
            }
        }
        // A crate with `lib.rs` and `main.rs` has one root for both.
        let known = self.krate.modules.entry(place).or_default();
        if known.file.is_empty() {
            *known = module;
        }
        Ok(())
    }
}

/// Where the module `child` lies that is declared in `parent`.
fn file_of(parent: &Path, attributes: &[Attribute], child: &[String]) -> anyhow::Result<PathBuf> {
    let folder = parent.parent().unwrap_or(parent);
    if let Some(path) = attributes.iter().find_map(explicit_path) {
        return Ok(folder.join(path));
    }
    let name = child.last().map(String::as_str).unwrap_or_default();
    let stem = parent.file_stem().unwrap_or_default().to_string_lossy();
    let folder = match &*stem {
        "lib" | "main" | "mod" => folder.to_owned(),
        stem => folder.join(stem),
    };
    let places = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
    let found = places.into_iter().find(|place| place.exists());
    found.with_context(|| format!("{} declares {name}, which has no file", parent.display()))
}

fn explicit_path(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let Expr::Lit(literal) = &pair.value else { return None };
    let Lit::Str(text) = &literal.lit else { return None };
    pair.path.is_ident("path").then(|| text.value())
}

/// Whether an item exists in tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => {
            list.path.is_ident("cfg") && list.tokens.to_string().starts_with("test")
        }
        Meta::Path(path) => path.is_ident("test"),
        Meta::NameValue(_) => false,
    })
}

// === impl Module ===

impl Module {
    /// Notes the leaves of a `use`: its names, and whether the code here needs them.
    fn take(&mut self, before: &[String], tree: &UseTree, is_private: bool) {
        let join = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.take(&join(&path.ident), &path.tree, is_private),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.take(before, tree, is_private));
            }
            UseTree::Glob(_) => {
                self.globs.push(before.to_vec());
                if is_private {
                    self.named.insert([before, &["*".to_owned()]].concat());
                }
            }
            UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().cloned().unwrap_or_default();
                self.take_as(last, before.to_vec(), is_private);
            }
            UseTree::Name(name) => {
                self.take_as(name.ident.to_string(), join(&name.ident), is_private);
            }
            UseTree::Rename(rename) => {
                let is_self = rename.ident == "self";
                let path = if is_self { before.to_vec() } else { join(&rename.ident) };
                self.take_as(rename.rename.to_string(), path, is_private);
            }
        }
    }

    fn take_as(&mut self, name: String, path: Segments, is_private: bool) {
        if is_private {
            self.named.insert(path.clone());
        }
        if name != "_" {
            self.imported.insert(name, path);
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    #[expect(clippy::wildcard_enum_match_arm, reason = "syn may know more kinds one day")]
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = match item {
            Item::Use(import) => {
                if !is_test(&import.attrs) {
                    let is_private = matches!(import.vis, Visibility::Inherited);
                    self.take(&[], &import.tree, is_private);
                }
                return;
            }
            Item::Const(it) => (&it.attrs, Some(&it.ident)),
            Item::Enum(it) => (&it.attrs, Some(&it.ident)),
            Item::Fn(it) => (&it.attrs, Some(&it.sig.ident)),
            Item::Impl(it) => (&it.attrs, None),
            Item::Macro(it) => (&it.attrs, it.ident.as_ref()),
            Item::Static(it) => (&it.attrs, Some(&it.ident)),
            Item::Struct(it) => (&it.attrs, Some(&it.ident)),
            Item::Trait(it) => (&it.attrs, Some(&it.ident)),
            Item::Type(it) => (&it.attrs, Some(&it.ident)),
            _ => return visit::visit_item(self, item),
        };
        if is_test(attributes) {
            return;
        }
        self.defined.extend(name.map(ToString::to_string));
        if matches!(item, Item::Enum(_) | Item::Struct(_) | Item::Trait(_) | Item::Type(_)) {
            self.types.extend(name.map(ToString::to_string));
        }
        visit::visit_item(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        // A single name is defined here or was imported, and a `use` is read by itself.
        if path.segments.len() > 1 {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string());
            self.named.insert(segments.collect());
        }
        visit::visit_path(self, path);
    }
}
