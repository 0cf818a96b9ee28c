/** A content and its options as JSON, in lines. */
export function Codes({ content, options, of }: { content: unknown; options: unknown; of: string }) {
  return (
    <>
      {content !== undefined && <Code name="Content" of={of} value={content} />}
      {options !== undefined && options !== null && <Code name="Options" of={of} value={options} />}
    </>
  );
}

function Code({ name, of, value }: { name: string; of: string; value: unknown }) {
  return (
    <>
      <h3>{name}</h3>
      <pre role="group" aria-label={`${name} ${of}`} tabIndex={0}>
        {JSON.stringify(value, null, 2)}
      </pre>
    </>
  );
}
