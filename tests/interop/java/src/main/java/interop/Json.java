package interop;

import java.util.Map;

/** Writes JSON; the libraries that the versions of RocketMQ bring for it differ. */
final class Json {
    private Json() {
    }

    /** Of names and values in turn. */
    static String object(Object... namesAndValues) {
        StringBuilder out = new StringBuilder("{");
        for (int i = 0; i < namesAndValues.length; i += 2) {
            out.append(i == 0 ? "" : ", ");
            text(out, namesAndValues[i].toString());
            out.append(": ");
            value(out, namesAndValues[i + 1]);
        }
        return out.append("}").toString();
    }

    private static void value(StringBuilder out, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map) {
            String separator = "{";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(separator);
                text(out, entry.getKey().toString());
                out.append(": ");
                value(out, entry.getValue());
                separator = ", ";
            }
            out.append(separator.equals("{") ? "{}" : "}");
        } else if (value instanceof Iterable) {
            String separator = "[";
            for (Object item : (Iterable<?>) value) {
                out.append(separator);
                value(out, item);
                separator = ", ";
            }
            out.append(separator.equals("[") ? "[]" : "]");
        } else {
            text(out, value.toString());
        }
    }

    private static void text(StringBuilder out, String text) {
        out.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c >= ' ' && c < 127) {
                out.append(c);
            } else {
                out.append(String.format("\\u%04x", (int) c));
            }
        }
        out.append('"');
    }
}
