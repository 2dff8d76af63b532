package interop;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What the broker's own filter says of expressions of SQL92. A line of the first file is a message, M and its properties'
 * names and values, or an expression, E and its text; tabs between them. The second file gets a line for each expression:
 * R where it is refused, else for each message T, F, N (null or no truth value) or E (an exception).
 */
public final class Judge {
    private Judge() {
    }

    public static void main(String[] args) throws Exception {
        List<Map<String, String>> messages = new ArrayList<>();
        List<String> answers = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(args[0]), StandardCharsets.UTF_8)) {
            String[] parts = line.split("\t", -1);
            if (parts[0].equals("M")) {
                Map<String, String> properties = new HashMap<>();
                for (int at = 1; at + 1 < parts.length; at += 2) {
                    properties.put(parts[at], parts[at + 1]);
                }
                messages.add(properties);
            } else {
                answers.add(judged(parts[1], messages));
            }
        }
        Files.write(Paths.get(args[1]), answers, StandardCharsets.UTF_8);
    }

    private static String judged(String text, List<Map<String, String>> messages) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text);
        } catch (Throwable refused) {
            return "R";
        }
        StringBuilder found = new StringBuilder();
        for (Map<String, String> properties : messages) {
            found.append(answer(expression, properties));
        }
        return found.toString();
    }

    private static char answer(Expression expression, Map<String, String> properties) {
        try {
            Object value = expression.evaluate(new MessageEvaluationContext(properties));
            return value instanceof Boolean ? (Boolean) value ? 'T' : 'F' : 'N';
        } catch (Throwable why) {
            return 'E';
        }
    }
}
