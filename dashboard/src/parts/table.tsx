/**
 * Tables: sortable where there is an order, in a frame that scrolls sideways by itself on narrow screens. Of long ones a first part is
 * drawn, and more when asked for, so that thousands of rows stay quick.
 */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { count } from "../core/format";
import { Empty } from "./states";

export interface Column<Row> {
  key: string;
  head: string;
  cell(row: Row): ComponentChildren;
  /** By what rows are sorted when this heading is pressed; without it they are not. Null goes last. */
  sort?: (row: Row) => number | string | null;
  /** Numbers stand at the right, under one another. */
  number?: boolean;
  /** What the heading means, where a word does not say it. */
  explain?: string;
}

/** A column by its key, ascending, or `-` and its key, descending. */
export type Order = string;

interface Props<Row> {
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey(row: Row): string;
  /** With these two the order is kept by what shows the table (in the address, say); else the table keeps it. */
  order?: Order | undefined;
  onOrder?: (order: Order) => void;
  empty?: ComponentChildren;
  /** The row that is open or meant. */
  current?: string | null;
  rowTone?: (row: Row) => string | undefined;
}

const step = 200;

export function Table<Row>(props: Props<Row>) {
  const { caption, columns, rows, rowKey, empty = "There is nothing here.", current = null, rowTone } = props;
  const [own, setOwn] = useState<Order>("");
  const [most, setMost] = useState(step);
  const order = props.order ?? own;
  if (rows.length === 0) return <Empty>{empty}</Empty>;
  const sorted = inOrder(rows, columns, order);
  return (
    <>
      <div class="table" role="group" aria-label={caption} tabIndex={0}>
        <table>
          <caption class="hidden">{caption}</caption>
          <thead>
            <tr>
              {columns.map((column) => (
                <Head key={column.key} column={column} order={order} onOrder={props.onOrder ?? setOwn} />
              ))}
            </tr>
          </thead>
          <tbody>
            {sorted.slice(0, most).map((row) => {
              const key = rowKey(row);
              return (
                <tr key={key} class={rowTone?.(row)} aria-current={key === current ? "true" : undefined}>
                  {columns.map((column) => (
                    <td key={column.key} class={column.number ? "number" : undefined}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {sorted.length > most && (
        <p class="more">
          <button type="button" onClick={() => setMost(most + step)}>
            Show {count(Math.min(step, sorted.length - most))} more
          </button>
          <span class="mute">
            {count(most)} of {count(sorted.length)} are shown
          </span>
        </p>
      )}
    </>
  );
}

function Head<Row>({ column, order, onOrder }: { column: Column<Row>; order: Order; onOrder: (order: Order) => void }) {
  const sense = order === column.key ? "ascending" : order === `-${column.key}` ? "descending" : "none";
  const className = column.number ? "number" : undefined;
  if (column.sort === undefined) {
    return (
      <th scope="col" class={className} title={column.explain}>
        {column.head}
      </th>
    );
  }
  // Numbers are looked at from the largest on.
  const next = sense === "none" ? (column.number ? `-${column.key}` : column.key) : sense === "ascending" ? `-${column.key}` : column.key;
  return (
    <th scope="col" class={className} aria-sort={sense} title={column.explain}>
      <button type="button" class="sort" onClick={() => onOrder(next)}>
        {column.head}
        <span aria-hidden="true">{sense === "ascending" ? "↑" : sense === "descending" ? "↓" : ""}</span>
      </button>
    </th>
  );
}

function inOrder<Row>(rows: readonly Row[], columns: readonly Column<Row>[], order: Order): readonly Row[] {
  const sense = order.startsWith("-") ? -1 : 1;
  const by = columns.find((column) => column.key === order.replace(/^-/, ""))?.sort;
  if (by === undefined) return rows;
  const keyed = rows.map((row) => ({ row, value: by(row) }));
  keyed.sort((left, right) => {
    if (left.value === null || right.value === null) return Number(left.value === null) - Number(right.value === null);
    if (left.value === right.value) return 0;
    return left.value < right.value ? -sense : sense;
  });
  return keyed.map(({ row }) => row);
}
