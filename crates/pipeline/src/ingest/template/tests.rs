//! What templates render to, and what they say when they do not.

use super::*;

fn compile(payload: &str) -> Result<Template, Fault> {
    let content =
        Content { payload: Bytes::copy_from_slice(payload.as_bytes()), ..Content::default() };
    Template::compile(&content, &["html"])
}

fn render(payload: &str, variables: &str) -> Result<String, Fault> {
    let variables = Variables::read(variables.as_bytes())?;
    let content = compile(payload)?.render(&variables)?;
    let text = String::from_utf8(content.payload.to_vec()).unwrap();
    serde_json::from_str::<serde::de::IgnoredAny>(&text).expect("what is rendered is JSON");
    Ok(text)
}

#[test]
fn strings_are_rendered_and_everything_else_stays_as_it_is() {
    let check = |payload: &str, variables: &str, expect: &str| {
        assert_eq!(render(payload, variables).as_deref(), Ok(expect), "{payload} {variables}");
    };
    let variables =
        r#"{"name": "Ann \"A\" \\ <b>", "n": 3, "xs": ["a", "b"], "none": null, "on": true}"#;
    check(r#"{"a" : 1.50, "{{ n }}": [ "x" ]}"#, variables, r#"{"a" : 1.50, "{{ n }}": [ "x" ]}"#);
    check(r#"{"a": "Dear {{ name }},\n"}"#, variables, r#"{"a": "Dear Ann \"A\" \\ <b>,\n"}"#);
    check(r#"["\u007b{ n }} of {{n}}\n"]"#, variables, r#"["3 of 3\n"]"#);
    check(
        r#"["{{ n }}", "{{- on -}}", "{{ none }}", "{{ xs }}"]"#,
        variables,
        r#"[3, true, null, ["a","b"]]"#,
    );
    check(
        r#"["{{ name }}", " {{ n }}", "{{ n }}{{ n }}"]"#,
        variables,
        r#"["Ann \"A\" \\ <b>", " 3", "33"]"#,
    );
    check(
        r#"["{{ name if n > 5 }}", "{{ name|safe }}"]"#,
        variables,
        r#"["", "Ann \"A\" \\ <b>"]"#,
    );
    check(
        r#"["{% for x in xs %}{{ loop.index }}{{ x|upper }} {% endfor %}", "{{ xs|join(', ') }}"]"#,
        variables,
        r#"["1A 2B ", "a, b"]"#,
    );
    check(
        r#"["{% if nn is defined %}{{ nn }}{% else %}-{% endif %}", "{{ nn|default('x') }}"]"#,
        variables,
        r#"["-", "x"]"#,
    );
    check(
        r#"{"html": "<p>{{ name }}", "text": "{{ name|e }}", "htmlx": "-{{ name }}"}"#,
        r#"{"name": "<i>"}"#,
        r#"{"html": "<p>&lt;i&gt;", "text": "&lt;i&gt;", "htmlx": "-<i>"}"#,
    );
    check(
        r#"{"html": {"deep": ["{{ name }}"]}}"#,
        r#"{"name": "<i>"}"#,
        r#"{"html": {"deep": ["&lt;i&gt;"]}}"#,
    );
    check(r#"["{{ u.name }} {{ u['name'] }}"]"#, r#"{"u": {"name": "x"}}"#, r#"["x x"]"#);
    check(r#"["{{ '{{' }}{# nothing #}"]"#, "{}", r#"["{{"]"#);
}

#[test]
fn a_fault_names_the_string_or_the_variable() {
    let check = |payload: &str, variables: &str, pointer: &str, part: &str| {
        let fault = render(payload, variables).unwrap_err();
        assert_eq!(fault.pointer, pointer, "{payload}: {fault}");
        assert!(fault.message.contains(part), "{payload}: {fault}");
    };
    check(r#"{"a": ["{{ nobody }} {{ 1 2 }}"]}"#, "{}", "/content/a/0", "is no template");
    check(
        r#"{"a": ["Dear {{ name }}"]}"#,
        "{}",
        "/variables",
        "`name` is missing: /content/a/0 needs it",
    );
    check(
        r#"{"a": "{{ user.name }}"}"#,
        r#"{"user": {}}"#,
        "/variables",
        "`user.name` is missing: /content/a",
    );
    check(r#"{"a": "{% if vip %}x{% endif %}"}"#, "{}", "/variables", "`vip` is missing");
    check(
        r#"{"a": "{% for x in xs %}{{ x.y }}{% endfor %}"}"#,
        r#"{"xs": [{}]}"#,
        "/content/a",
        "undefined",
    );
    check(r#"{"a": "one\n{{ 1 +"}"#, "{}", "/content/a", "`+` is not available");
    check(r#"{"a": "one\n{{ 1"}"#, "{}", "/content/a", "(line 2)");
    check(r#"{"a": "{% set x = 1 %}"}"#, "{}", "/content/a", "`{% set %}` is not available");
    check(r#"{"a": "{{ range(9) }}"}"#, "{}", "/content/a", "range is unknown");
    check(r#"{"a": "{{ x|round }}"}"#, r#"{"x": "y"}"#, "/content/a", "");
    check(r#"{"a": "x{{ x }}"}"#, "[]", "/variables", "must be a JSON object");
    check(
        r#"{"a": "x{{ x }}"}"#,
        &format!("{{\"x\": \"{}\"}}", "x".repeat(VARIABLES_BYTES)),
        "/variables",
        "must have at most 65536 bytes, has 65545",
    );
    let large = "x".repeat(TEMPLATE_BYTES);
    check(
        &format!("[\"{large}\"]"),
        "{}",
        "/content",
        "a template must have at most 131072 bytes, has 131076",
    );
    let many = format!("[{}1]", "\"{{ x }}\",".repeat(TEMPLATE_STRINGS + 1));
    check(&many, "{}", "/content", "must have at most 64 strings with tags, has 65");
}

#[test]
fn steps_and_what_is_rendered_are_bounded() {
    let numbers: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let variables =
        format!("{{\"xs\": [{}], \"text\": \"{}\"}}", numbers.join(","), "x".repeat(60_000));
    let check = |template: &str, part: &str| {
        let fault = render(&format!("{{\"a\": \"{template}\"}}"), &variables).unwrap_err();
        assert_eq!(fault.pointer, "/content/a", "{fault}");
        assert!(fault.message.contains(part), "{template}: {fault}");
    };
    let loops = |depth: usize, inner: &str| {
        format!("{}{inner}{}", "{% for x in xs %}".repeat(depth), "{% endfor %}".repeat(depth))
    };
    check(&loops(3, "{{ x }}"), "takes too many steps");
    check(&loops(1, "{{ text }}"), "has more than 262144 bytes when rendered");
    check(
        &format!("{{{{ [{}] }}}}", ["text"; 100].join(",")),
        "has more than 262144 bytes when rendered",
    );
    check(
        &format!("{{{{ [{}]|join }}}}", ["text"; 100].join(",")),
        "joins to more than 262144 bytes",
    );
    check("{% for x in xs recursive %}{{ loop(xs) }}{% endfor %}", "recursion");
}

#[test]
fn what_a_recipient_says_goes_before_what_is_said_to_all() {
    let own = Variables::read(br#"{"name": "Ann", "off": null}"#).unwrap();
    let common = Variables::read(br#"{"name": "you", "shop": "S", "off": 1}"#).unwrap();
    let template = compile(r#"["{{ name }} at {{ shop }}", "{{ off }}"]"#).unwrap();
    assert_eq!(template.render(&own.over(&common)).unwrap().payload, r#"["Ann at S", null]"#);
}

#[test]
fn a_template_without_tags_is_the_same_for_everybody() {
    assert!(compile(r#"{"a": "{ x }"}"#).unwrap().is_constant());
    assert!(!compile(r#"{"a": "{{ x }}"}"#).unwrap().is_constant());
}
