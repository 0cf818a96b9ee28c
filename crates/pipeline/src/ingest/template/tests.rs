//! The renderings of templates, and their errors.

use super::*;
use crate::ingest::limits::VARIABLES_BYTES;

fn compile(payload: &str) -> Result<Template, InvalidField> {
    let content =
        Content { payload: Bytes::copy_from_slice(payload.as_bytes()), ..Content::default() };
    Template::compile(&content, &["html"])
}

fn render(payload: &str, variables: &str) -> Result<String, InvalidField> {
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
        let invalid = render(payload, variables).unwrap_err();
        assert_eq!(invalid.pointer, pointer, "{payload}: {invalid}");
        assert!(invalid.message.contains(part), "{payload}: {invalid}");
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
    check(&many, "{}", "/content", "must have at most 64 strings with tags");
}

#[test]
fn steps_and_what_is_rendered_are_bounded() {
    let numbers: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let variables =
        format!("{{\"xs\": [{}], \"text\": \"{}\"}}", numbers.join(","), "x".repeat(60_000));
    let check = |template: &str, part: &str| {
        let invalid = render(&format!("{{\"a\": \"{template}\"}}"), &variables).unwrap_err();
        assert_eq!(invalid.pointer, "/content/a", "{invalid}");
        assert!(invalid.message.contains(part), "{template}: {invalid}");
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
    check(&format!("{{{{ [{}]|join }}}}", ["text"; 100].join(",")), "takes too many steps");
    check("{% for x in xs recursive %}{{ loop(xs) }}{% endfor %}", "recursion");
}

#[test]
fn what_all_strings_are_rendered_to_is_bounded_together_and_as_json() {
    let check = |template: &str, text: &str, strings: usize, pointer: Option<&str>| {
        let strings = vec![format!("{:?}", template.repeat(4)); strings].join(",");
        let variables = format!("{{\"text\": \"{text}\"}}");
        let rendered = render(&format!("[{strings}]"), &variables);
        assert_eq!(rendered.err().map(|invalid| invalid.pointer.to_string()).as_deref(), pointer);
    };
    // 4 times 15,000 bytes in each string: a fifth one is too much.
    let text = "x".repeat(15_000);
    for template in ["-{{ text }}", "{{ text }}{# #}"] {
        check(template, &text, 4, None);
        check(template, &text, TEMPLATE_STRINGS, Some("/content/4"));
    }
    // JSON has six bytes for each of these.
    let text = "\\u0001".repeat(10_000);
    check("-{{ text }}", &text, 1, None);
    check("-{{ text }}", &text, TEMPLATE_STRINGS, Some("/content/1"));
}

#[test]
fn values_that_are_no_texts_are_written_as_json_has_them_and_null_is_nothing() {
    let variables =
        r#"{"no": null, "yes": true, "n": 12.50, "big": 12345678901234567890123, "xs": [1, null]}"#;
    let check = |template: &str, expect: &str| {
        let rendered = render(&format!(r#"["{template}"]"#), variables);
        assert_eq!(rendered.as_deref(), Ok(&*format!(r#"["{expect}"]"#)), "{template}");
    };
    check("Dear {{ no }}{{ no|default('you', true) }}", "Dear you");
    check("{{ yes }} {{ not yes }}", "true false");
    check("is {{ n }}", "is 12.5");
}

#[test]
fn what_would_take_all_memory_or_all_time_is_refused() {
    let numbers: Vec<String> =
        (0..5_000).map(|number| (number * 7_919 % 5_000).to_string()).collect();
    let variables = format!(
        "{{\"xs\": [{}], \"text\": \"{}\", \"words\": \"{}\"}}",
        numbers.join(","),
        "é".repeat(8_000),
        "a,".repeat(8_000)
    );
    let check = |template: &str, part: &str| {
        let invalid = render(&format!("{{\"a\": \"{template}\"}}"), &variables).unwrap_err();
        assert_eq!(invalid.pointer, "/content/a", "{invalid}");
        assert!(invalid.message.contains(part), "{template}: {invalid}");
    };
    check("{{ 'x' * 1000000000 }}", "`*` is not available");
    check("{{ 10 ** 1000000000 }}", "`*` is not available");
    check("{% for x in range(1000000000) %}{% endfor %}", "range is unknown");
    check("{{ text|center(1000000000) }}", "the filter `center` is not available");
    check("{{ text|indent(1000000000) }}", "the filter `indent` is not available");
    check("{{ text|replace('', text) }}", "the filter `replace` is not available");
    check("{{ '%1000000000d'|format(1) }}", "the filter `format` is not available");
    check("{{ xs|batch(1)|list }}", "the filter `batch` is not available");
    check("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "`{% macro %}` is not available");
    check("{% set xs = [xs, xs] %}", "`{% set %}` is not available");
    check("{{ text.upper() }}", "has no method named upper");
    check(&format!("{{{{ {}1{} }}}}", "(".repeat(500), ")".repeat(500)), "recursion");
    check(&"{% if xs %}".repeat(5_000), "recursion");
    let elifs = |count| format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(count));
    check(&elifs(10_000), "must have at most 100 `{% elif %}`");
    assert_eq!(render(&format!("[\"{}\"]", elifs(100)), "{}").as_deref(), Ok("[\"\"]"));
    check(&"{% for x in xs %}".repeat(5_000), "recursion");
    let in_loop =
        |inner: &str| format!("{{% for x in xs %}}{{% if {inner} %}}{{% endif %}}{{% endfor %}}");
    check(&in_loop("xs == xs"), "takes too many steps");
    check(&in_loop("x in xs"), "takes too many steps");
    check(&in_loop("text == text and text[1:] < text"), "takes too many steps");
    check(&in_loop(&format!("xs{}", "|reverse|sort".repeat(60))), "takes too many steps");
    check(&in_loop(&format!("text{}", "|upper|lower".repeat(60))), "takes too many steps");
    check(&in_loop("xs|join(text)"), "joins to more than 262144 bytes");
    check("{{ words|split(',') }}", "makes a list of more than 1000 parts");
    check("{{ text|list }}", "makes a list of more than 1000 parts");
    check("{% for t in [text|sort] %}{% endfor %}", "");
    let doubled = format!("{{{{ {}text{} }}}}", "[".repeat(24), "]|string".repeat(24));
    check(&doubled, "a list within a list is not available");
    check("{{ [text]|string }}", "`string` takes a text, and not a list or an object");
    check("{{ {}|upper }}", "`{` is not available");
    check("{{ [xs]|join }}", "`join` takes texts");
    check(
        "{% for a in [[xs, xs]] %}{% for b in [[a, a]] %}{% endfor %}{% endfor %}",
        "a list within a list",
    );
    check("{{ [{'a':{}}, 'x' * 90000000]|length }}", "`{` is not available");
}

#[test]
fn the_worst_that_a_template_can_do_takes_few_steps() {
    let numbers = vec!["1"; 30_000].join(",");
    let variables = Variables::read(format!("{{\"xs\": [{numbers}]}}").as_bytes()).unwrap();
    let template =
        compile(r#"["{% for x in xs %}{% if xs == xs %}{% endif %}{% endfor %}"]"#).unwrap();
    let environment = template.environment_for(variables.weight);
    let steps = environment.fuel().unwrap();
    assert!((20..30).contains(&steps), "each of them may look at 30,000 values: {steps}");
    let light = Variables::read(br#"{"xs": [1]}"#).unwrap();
    assert_eq!(template.environment_for(light.weight).fuel(), Some(TEMPLATE_STEPS));
}

#[test]
fn a_mail_with_a_long_list_is_within_the_bounds() {
    let item = r#"{"name": "A thing of some length", "price": "12.50", "tags": ["red", "blue"]}"#;
    let variables = format!("{{\"items\": [{}]}}", vec![item; 300].join(","));
    let row = "<tr><td>{{ item.name|upper }}</td><td>{{ item.price }}</td><td>{{ item.tags|sort|join(', ') }}</td></tr>";
    let html = format!(r#"{{"html": "{{% for item in items %}}{row}{{% endfor %}}"}}"#);
    let rendered = render(&html, &variables).unwrap();
    assert_eq!(
        rendered.matches("<td>A THING OF SOME LENGTH</td><td>12.50</td><td>blue, red</td>").count(),
        300
    );
}

#[test]
fn lists_of_six_hundred_lines_render_with_decisions_by_literals() {
    let item = r#"{"name": "A thing of some length", "price": 12.5}"#;
    let variables = format!("{{\"items\": [{}]}}", vec![item; 600].join(","));
    let row = "<tr><td>{{ loop.index }}</td><td>{{ item.name|upper }}</td><td>{% if item.price > 10 and item.off is not defined %}{{ item.price|round(1) }}{% endif %}</td></tr>";
    let html = format!(
        r#"{{"html": "{{{{ items|length }}}}{{% for item in items %}}{row}{{% endfor %}}"}}"#
    );
    let rendered = render(&html, &variables).unwrap();
    assert_eq!(rendered.matches("<td>A THING OF SOME LENGTH</td><td>12.5</td>").count(), 600);
}

#[test]
fn templates_that_compare_have_steps_for_a_list_of_ninety_lines() {
    let item = r#"{"name": "A thing", "price": 12.5}"#;
    let variables = |count: usize| {
        format!("{{\"best\": \"A thing\", \"items\": [{}]}}", vec![item; count].join(","))
    };
    let row = "{% if item.name == best %}{{ item.price }} {% endif %}";
    let text = format!(r#"{{"text": "{{% for item in items %}}{row}{{% endfor %}}"}}"#);
    assert_eq!(render(&text, &variables(90)).unwrap().matches("12.5 ").count(), 90);
    let invalid = render(&text, &variables(600)).unwrap_err();
    assert_eq!(invalid.message, "takes too many steps");
}

#[test]
fn steps_times_values_compared_stay_within_the_work_of_a_template() {
    let numbers = (0..7_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let json = format!("{{\"xs\": [{numbers}], \"ys\": [0, 1], \"text\": \"n\"}}");
    let variables = Variables::read(json.as_bytes()).unwrap();
    for hostile in ["-1 in xs", "'x' not in xs", "xs == ys", "ys < xs", "text is in xs", "xs[1:]"] {
        let each = format!("{{% if {hostile} %}}{{% endif %}}");
        let template = compile(&format!("[\"{{% for x in xs %}}{each}{{% endfor %}}\"]")).unwrap();
        let steps = template.environment_for(variables.weight).fuel().unwrap();
        assert!(steps * variables.weight <= TEMPLATE_WORK, "{hostile}: {steps} steps");
        let invalid = template.render(&variables).unwrap_err();
        assert_eq!(invalid.message, "takes too many steps", "{hostile}");
    }
}

#[test]
fn filters_are_charged_for_the_texts_they_measure_and_make() {
    let variables = format!(
        "{{\"xs\": [{}], \"text\": \"{}\", \"object\": {{{}}}}}",
        vec!["1"; 1_000].join(","),
        "1".repeat(20_000),
        (0..1_000).map(|key| format!("\"{key}\": 1")).collect::<Vec<_>>().join(",")
    );
    for hostile in
        ["text|length", "text|int(0)", "text|float(0)", "object|first", "'abcdefgh'|join(text)"]
    {
        let template =
            format!("[\"{{% for x in xs %}}{{% if {hostile} %}}{{% endif %}}{{% endfor %}}\"]");
        let invalid = render(&template, &variables).unwrap_err();
        assert_eq!(invalid.message, "takes too many steps", "{hostile}");
    }
    let cheap = r#"["{% for x in xs %}{% if xs|length > 1 and xs|last and xs|first %}y{% endif %}{% endfor %}"]"#;
    assert_eq!(render(cheap, &variables).unwrap().matches('y').count(), 1_000);
}

#[test]
fn an_empty_text_is_no_way_to_a_panic() {
    let invalid = render(r#"["{{ x[::-1] }}"]"#, r#"{"x": ""}"#).unwrap_err();
    assert!(invalid.message.contains("a slice has no step"), "{invalid}");
    assert_eq!(render(r#"["{{ x|reverse }}-{{ x[1:] }}"]"#, r#"{"x": ""}"#).unwrap(), r#"["-"]"#);
}

#[test]
fn variables_nested_too_deep_are_refused_and_others_are_written_as_they_are() {
    let nested = |depth: usize| format!("{{\"x\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
    let invalid = render(r#"["{{ x }}"]"#, &nested(200)).unwrap_err();
    assert_eq!(invalid.pointer, "/variables", "{invalid}");
    assert!(invalid.message.contains("recursion limit exceeded"), "{invalid}");
    let deep = nested(100);
    let value = deep.strip_prefix("{\"x\": ").and_then(|rest| rest.strip_suffix('}')).unwrap();
    let expect = format!("[{value}]");
    assert_eq!(render(r#"["{{ x }}"]"#, &deep).unwrap(), expect);
}

#[test]
fn no_variable_can_leave_its_string() {
    let variable = r#"{"x": "\",\"admin\":true,\"y\":\"\\\u0000\n</script>{{ 1 }}"}"#;
    let value: serde_json::Value = serde_json::from_str(variable).unwrap();
    for template in
        [r#"{"a":"{{ x }}"}"#, r#"{"a":"{{ x|safe }}"}"#, r#"{"a":"{% if 1 %}{{ x }}{% endif %}"}"#]
    {
        let rendered = render(template, variable).unwrap();
        let rendered: serde_json::Value = serde_json::from_str(&rendered).unwrap();
        assert_eq!(rendered, serde_json::json!({"a": value["x"]}), "{template}");
    }
    let html = render(
        r#"{"html":"<a title=\"{{ x }}\">{{ [x]|join }}{{ x|upper }}"}"#,
        r#"{"x": "\"'><i onload=x>&"}"#,
    );
    let escaped = "&quot;&#x27;&gt;&lt;i onload=x&gt;&amp;";
    let upper = "&quot;&#x27;&gt;&lt;I ONLOAD=X&gt;&amp;";
    let expect = format!(r#"{{"html":"<a title=\"{escaped}\">{escaped}{upper}"}}"#);
    assert_eq!(html.unwrap(), expect);
}

#[test]
fn a_variable_cannot_add_a_header_to_a_mail() {
    let settings =
        serde_json::json!({"relay": "smtp://127.0.0.1", "tls": "off", "from": "a@example.com"});
    let settings: channel::smtp::Settings = serde_json::from_value(settings).unwrap();
    let mail = channel::smtp::SmtpChannel::new(&settings).unwrap();
    let check = |payload: &str, variable: &str, expect: Option<&str>| {
        let variables = format!(r#"{{"x": {variable}}}"#);
        let payload = render(payload, &variables).unwrap();
        let content = Content { payload: payload.into(), ..Content::default() };
        let refused = crate::ingest::content::check_content((&mail, None), &content).err();
        assert_eq!(
            refused.as_ref().map(|invalid| &*invalid.pointer),
            expect,
            "{variable}: {refused:?}"
        );
    };
    let subject = r#"{"subject": "For {{ x }}", "text": "-"}"#;
    check(subject, r#""you""#, None);
    for breaks in [r#""a\r\nBcc: x@example.com""#, r#""a\nb""#, r#""a\rb""#, r#""a\u0000b""#] {
        check(subject, breaks, Some("/content/subject"));
        check(
            r#"{"subject": "-", "text": "-", "headers": {"X-A": "{{ x }}-"}}"#,
            breaks,
            Some("/content/headers/X-A"),
        );
        check(
            r#"{"subject": "-", "text": "-", "from": "{{ x }}@example.com"}"#,
            breaks,
            Some("/content/from"),
        );
        check(
            r#"{"subject": "-", "text": "-", "reply_to": "{{ x }}@example.com"}"#,
            breaks,
            Some("/content/reply_to"),
        );
    }
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

#[test]
fn long_keys_around_many_strings_cost_no_more_than_they_are() {
    let key = "k".repeat(60_000);
    let content = format!("{{\"{key}\": [{}]}}", vec![r#""{{a}}""#; 8_000].join(","));
    let invalid = compile(&content).map(|_| ()).unwrap_err();
    assert!(invalid.message.contains("at most 64 strings"), "{}", invalid.message);
    let escapes = format!("{{\"{key}\": [{}]}}", vec![r#""\n""#; 8_000].join(","));
    assert!(compile(&escapes).is_ok());
}
