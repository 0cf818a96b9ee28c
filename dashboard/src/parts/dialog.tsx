/** A dialog above the page: the browser's own, which keeps the focus within and gives it back, and closes by Escape. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

interface Props {
  title: string;
  children: ComponentChildren;
  /** Called when it is closed by Escape or its cross; without it, it cannot be closed. */
  onClose?: (() => void) | undefined;
  className?: string;
}

export function Dialog({ title, children, onClose, className = "" }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      class={className}
      aria-labelledby={id}
      onCancel={(event) => {
        // Its end is decided by what shows it; the browser alone would close it behind its back.
        event.preventDefault();
        onClose?.();
      }}
    >
      <header>
        <h2 id={id}>{title}</h2>
        {onClose !== undefined && (
          <button type="button" class="plain" aria-label="Close" onClick={onClose}>
            ×
          </button>
        )}
      </header>
      {children}
    </dialog>
  );
}
